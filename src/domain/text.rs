//! Texts that come from outside: what may stand in them, so that they read the same wherever
//! they are shown and fit wherever they are kept.

/// Why a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("is 1 to {most} characters")]
    Length { most: usize },
    #[error(
        "is one line without control characters, invisible ones, and ones that turn the direction of writing"
    )]
    Line,
    #[error("has no space at its ends")]
    Ends,
    #[error("has no control characters but newline and tab")]
    Prose,
}

/// Checks a text of one line, such as a name: it has to look like what it is.
///
/// # Errors
/// A text that is blank or longer than `most` characters; control characters, line separators,
/// characters that have no width, and those that turn the direction of writing.
pub fn line(text: &str, most: usize) -> Result<(), TextError> {
    length(text, most)?;
    if text.chars().any(|c| c.is_control() || is_hidden(c)) {
        return Err(TextError::Line);
    }
    Ok(())
}

/// Checks a word that things are found by, such as the code of a city: a line without space at its
/// ends, which a database may take for nothing.
///
/// # Errors
/// As [`line`], and space at an end.
pub fn word(text: &str, most: usize) -> Result<(), TextError> {
    line(text, most)?;
    if text.trim() != text {
        return Err(TextError::Ends);
    }
    Ok(())
}

/// Checks free text, such as a note.
///
/// # Errors
/// A text that is blank or longer than `most` characters; control characters but newline and
/// tab.
pub fn prose(text: &str, most: usize) -> Result<(), TextError> {
    length(text, most)?;
    if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        return Err(TextError::Prose);
    }
    Ok(())
}

fn length(text: &str, most: usize) -> Result<(), TextError> {
    if text.trim().is_empty() || text.chars().count() > most {
        return Err(TextError::Length { most });
    }
    Ok(())
}

/// Characters that are not seen and change what is: those that Unicode lets a program ignore
/// (`Default_Ignorable_Code_Point`), blanks that are letters, those for the direction of writing,
/// and the two that end a line or paragraph without being control characters.
const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_all_that_it_is() {
        for good in ["cash", "İstanbul – Şişli", "Альфа Обмен", "الفا", "x"] {
            assert_eq!(line(good, 32), Ok(()), "{good:?}");
        }
        for hidden in [
            '\0',
            '\n',
            '\t',
            '\u{7f}',
            '\u{85}',
            '\u{200b}',
            '\u{200d}',
            '\u{202a}',
            '\u{202e}',
            '\u{2028}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e0101}',
            '\u{34f}',
            '\u{600}',
            '\u{115f}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{1d173}',
        ] {
            assert_eq!(
                line(&format!("ca{hidden}sh"), 32),
                Err(TextError::Line),
                "{hidden:?}"
            );
        }
        for (text, most) in [("", 5), ("  ", 5), ("яяя", 2)] {
            assert_eq!(line(text, most), Err(TextError::Length { most }));
        }
        assert_eq!(line("яяя", 3), Ok(()), "characters, not bytes");
    }

    #[test]
    fn prose_has_lines() {
        assert_eq!(prose("one\n\ttwo \u{202b}three", 50), Ok(()));
        for control in ['\0', '\r', '\u{1b}', '\u{7f}', '\u{9b}'] {
            assert_eq!(prose(&format!("a{control}b"), 50), Err(TextError::Prose));
        }
        assert_eq!(prose(" \n ", 50), Err(TextError::Length { most: 50 }));
    }
}

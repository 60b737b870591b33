//! QR codes as pictures.

use qrcode::render::svg;
use qrcode::{EcLevel, QrCode};

use super::problem::{Code, Problem};

/// Pixels of a side, at least.
const SIDE: u32 = 320;

/// # Errors
/// A text that no code has room for.
pub(super) fn as_svg(text: &str) -> Result<String, Problem> {
    let code = code(text)?;
    let mut picture = code.render::<svg::Color<'_>>();
    Ok(picture.min_dimensions(SIDE, SIDE).build())
}

/// # Errors
/// As for [`as_svg`].
pub(super) fn as_png(text: &str) -> Result<Vec<u8>, Problem> {
    let code = code(text)?;
    let image = code
        .render::<image::Luma<u8>>()
        .min_dimensions(SIDE, SIDE)
        .build();
    let mut png = std::io::Cursor::new(Vec::new());
    let written = image.write_to(&mut png, image::ImageFormat::Png);
    written.map_err(|error| unreadable(&error))?;
    Ok(png.into_inner())
}

fn code(text: &str) -> Result<QrCode, Problem> {
    QrCode::with_error_correction_level(text, EcLevel::M).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    tracing::error!(%error, "a QR code can't be drawn");
    Problem::new(Code::Internal)
}

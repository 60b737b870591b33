//! `/v1/uploads`: files that prove something.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::params::PathOf;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::canonical::Hash;
use crate::route;
use crate::services::uploads::{PATH, Upload, UploadError};

pub fn routes() -> Routes {
    Routes::new().with(route!(create)).with(route!(read))
}

#[derive(Serialize, utoipa::ToSchema)]
struct UploadView {
    id: Uuid,
    /// What a proof names the file by.
    url: String,
    #[schema(value_type = String)]
    sha256: Hash,
    /// Found from the content: JPEG, PNG, GIF, WebP or PDF.
    content_type: String,
    /// Bytes.
    size: u32,
    created_at: DateTime<Utc>,
}

/// Keep a file: the body is the file itself, at most 10 MiB.
#[utoipa::path(post, path = "/v1/uploads", tag = "network", operation_id = "upload_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = UploadView)))]
async fn create(
    me: Allowed<actions::UploadCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    body: Body,
) -> Result<(StatusCode, Json<UploadView>), Problem> {
    let limit = state.config.upload_limit;
    let room = state.app.uploads.room().await;
    let body = to_bytes(body, limit).await.map_err(|_| {
        Problem::new(Code::TooLarge).detail(format!("A file has at most {limit} bytes."))
    })?;
    let intention = key.intention(me.principal.sub(), &Hash::of_bytes(&body));
    let uploads = state.app.uploads.clone();
    let broker = me.seat.broker_id;
    let work = async move {
        let stored = uploads.store(broker, &intention, &body).await;
        drop(room);
        stored
    };
    let upload = state.lifecycle.detached(work).await??;
    Ok((StatusCode::CREATED, Json(upload.into())))
}

/// Read a file of one's own, or a proof of a request that one is a party of.
#[utoipa::path(get, path = "/v1/uploads/{id}", tag = "network", operation_id = "upload_read",
    params(("id" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
async fn read(
    me: Allowed<actions::UploadRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Response, Problem> {
    let (upload, content) = state.app.uploads.read(me.seat.broker_id, id).await?;
    Ok(file(&upload, content))
}

/// A file of somebody's, to be kept and looked at.
pub(super) fn file(upload: &Upload, content: Vec<u8>) -> Response {
    let id = upload.id;
    let headers = [
        (CONTENT_TYPE, upload.content_type.clone()),
        // A file of somebody else's is looked at, never run.
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{id}\""),
        ),
        (CACHE_CONTROL, "private, no-store".to_owned()),
    ];
    (headers, content).into_response()
}

impl From<Upload> for UploadView {
    fn from(upload: Upload) -> Self {
        Self {
            id: upload.id,
            url: format!("{PATH}{}", upload.id),
            sha256: upload.sha256,
            content_type: upload.content_type,
            size: upload.size,
            created_at: upload.created_at,
        }
    }
}

impl From<UploadError> for Problem {
    fn from(error: UploadError) -> Self {
        let detail = error.to_string();
        match error {
            UploadError::Empty | UploadError::Kind => Self::invalid("body", detail),
            UploadError::KeyReused => Self::new(Code::KeyReused),
            UploadError::NotFound => Self::new(Code::NotFound),
            UploadError::Store(error) => error.into(),
        }
    }
}

//! The body of a request: of so many bytes, and for so long.

use axum::body::Body;
use bytes::Bytes;

use crate::limits::BODY_WAIT;
use crate::reply::Problem;

pub(super) async fn read_body(body: Body, max: usize) -> Result<Bytes, Problem> {
    let read = tokio::time::timeout(BODY_WAIT, axum::body::to_bytes(body, max)).await;
    let read = read.map_err(|_| Problem::bad("the body did not come in time"))?;
    read.map_err(|_| Problem::TooLarge(format!("the body has more than {max} bytes, or broke off")))
}

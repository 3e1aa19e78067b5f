//! Reads secrets from where the configuration says they are.

use crate::error::Error;
use crate::value::{Place, Secret};

/// Largest file that is taken for a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// The secret's text, without the line end that editors leave.
///
/// # Errors
/// The file or the variable is not there, is too large, or is no text.
pub fn read(secret: &Secret) -> Result<String, Error> {
    let text = match secret.place() {
        Place::Here(text) => text.to_owned(),
        Place::Env(name) => std::env::var(name)
            .map_err(|_| Error::setup(format!("the variable {name} is not set")))?,
        Place::File(path) => {
            let wrong = |why: String| Error::setup(format!("secret file {path}: {why}"));
            let bytes = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
            if bytes > SECRET_BYTES_MAX {
                return Err(wrong(format!("{bytes} bytes are more than {SECRET_BYTES_MAX}")));
            }
            std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?
        }
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

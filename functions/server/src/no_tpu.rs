//! The TPU API of a service that has no rights on TPUs: it refuses before anything is sent.

use async_trait::async_trait;

use rekindle_core::observation::{OperationView, SliceView};
use rekindle_ports::tpu::{CreateRequest, Listing, SliceRef, TpuApi, TpuError};

/// For `api` and `events`. A call that came here is a bug of ours, and the platform would refuse it too.
pub(crate) struct NoTpu;

fn denied() -> TpuError {
    TpuError::Denied("only the service reconcile may touch TPUs".into())
}

#[async_trait]
impl TpuApi for NoTpu {
    async fn create(&self, _: &CreateRequest) -> Result<String, TpuError> {
        Err(denied())
    }

    async fn delete(&self, _: &SliceRef) -> Result<String, TpuError> {
        Err(denied())
    }

    async fn get(&self, _: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        Err(denied())
    }

    async fn operation(&self, _: &str) -> Result<Option<OperationView>, TpuError> {
        Err(denied())
    }

    async fn list(&self) -> Result<Listing, TpuError> {
        Err(denied())
    }
}

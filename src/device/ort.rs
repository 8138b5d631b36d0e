//! The ONNX Runtime engine. The only file of the project that names the `ort` library.
//!
//! ONNX Runtime demands one environment a process, which is the one global thing here: [`Runtime::load`]
//! makes it on the first call and returns the same one ever after.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ort::ep;
use ort::logging::LogLevel;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, TensorElementType, TensorRef, ValueType};

use super::engine::{Engine, EngineError, EngineFactory, EngineSource, NetworkFile, Signature};
use crate::model::Device;
use crate::tensor::{DType, Element, Tensor, TensorSignature};
use crate::vision::ImageSize;

/// The loaded library. Sessions keep it alive.
#[derive(Clone)]
pub struct Runtime {
    environment: ort::environment::Environment,
}

/// Loads one ONNX file, as often as there are instances of it.
#[derive(Debug, Clone)]
pub struct OrtModel {
    /// The library.
    pub runtime: Runtime,
    /// The file, and what is known about it.
    pub file: NetworkFile,
}

struct OrtEngine {
    session: Session,
    device: Device,
    signature: Signature,
    size_input: Option<(String, ImageSize)>,
    path: String,
}

// === impl Runtime ===

impl Runtime {
    /// Loads the library at `path`. Only the first call of a process does; later ones return what it gave.
    ///
    /// # Errors
    /// [`EngineError::RuntimeMissing`] when it is not there or cannot be used.
    pub fn load(path: &Path) -> Result<Self, EngineError> {
        static ENVIRONMENT: OnceLock<Result<Runtime, EngineError>> = OnceLock::new();
        ENVIRONMENT.get_or_init(|| Self::load_once(path)).clone()
    }

    fn load_once(path: &Path) -> Result<Self, EngineError> {
        let missing = |detail: String| EngineError::RuntimeMissing {
            path: path.display().to_string(),
            detail,
        };
        let environment = ort::init_from(path)
            .map_err(|error| missing(one_line(&error)))?
            .with_name("detectd")
            // Nobody asked for it.
            .with_telemetry(false)
            .build()
            .map_err(|error| missing(one_line(&error)))?;
        // The bridge to `tracing` starts at VERBOSE, several lines for every node of a network.
        environment.set_log_level(LogLevel::Warning);
        Ok(Self { environment })
    }
}

impl EngineSource for Runtime {
    fn network(&self, file: NetworkFile) -> Arc<dyn EngineFactory> {
        Arc::new(OrtModel {
            runtime: self.clone(),
            file,
        })
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

// === impl OrtModel ===

impl EngineFactory for OrtModel {
    fn build(&self, device: Device, threads: usize) -> Result<Box<dyn Engine>, EngineError> {
        let NetworkFile {
            path: file,
            input,
            size_input,
        } = &self.file;
        let path = file.display().to_string();
        let load_error = |error: &dyn std::fmt::Display| EngineError::Load {
            path: path.clone(),
            detail: one_line(error),
        };
        if !file.is_file() {
            return Err(load_error(&"the file is not there"));
        }
        let unavailable = |error: &dyn std::fmt::Display| EngineError::DeviceUnavailable {
            device,
            detail: one_line(error),
        };

        let builder = Session::builder(&self.runtime.environment)
            .and_then(|builder| Ok(builder.with_optimization_level(GraphOptimizationLevel::All)?))
            .and_then(|builder| Ok(builder.with_log_level(LogLevel::Warning)?))
            // One run at a time on so many threads. Threads that spin between runs take the cores from the
            // decoders: 0.9 of one at 20 pictures a second.
            .and_then(|builder| Ok(builder.with_intra_threads(threads)?))
            .and_then(|builder| Ok(builder.with_inter_threads(1)?))
            .and_then(|builder| Ok(builder.with_intra_op_spinning(false)?))
            .and_then(|builder| Ok(builder.with_inter_op_spinning(false)?))
            .map_err(|error| load_error(&error))?;
        let mut builder = match device {
            Device::Cpu => builder,
            Device::Cuda(index) => {
                let index = i32::try_from(index)
                    .map_err(|_| unavailable(&"no device has such a number"))?;
                // Without `error_on_failure` a provider that cannot be had means the CPU, silently.
                let provider = ep::CUDA::default()
                    .with_device_id(index)
                    .build()
                    .error_on_failure();
                builder
                    .with_execution_providers([provider])
                    .map_err(|error| unavailable(&error))?
            }
        };
        let session = builder
            .commit_from_file(file)
            .map_err(|error| load_error(&error))?;
        let signature = read_signature(&session, input.as_deref(), size_input.as_ref())
            .map_err(|detail| load_error(&detail))?;
        Ok(Box::new(OrtEngine {
            session,
            device,
            signature,
            size_input: size_input.clone(),
            path: path.clone(),
        }))
    }
}

// === impl OrtEngine ===

impl Engine for OrtEngine {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError> {
        let device = self.device;
        let run_error = |error: ort::Error| run_error(device, one_line(&error));
        let mut shape: Vec<i64> = vec![rows as i64];
        // The dimensions behind the batch's: a single picture comes without one.
        let behind = self.signature.input.shape.len().saturating_sub(1);
        let picture = &input.shape()[input.shape().len().saturating_sub(behind)..];
        shape.extend(picture.iter().map(|length| *length as i64));

        let mut inputs = vec![(
            self.signature.input.name.as_str(),
            view(input, &shape).map_err(run_error)?,
        )];
        let sizes: Vec<i64>;
        if let Some((name, size)) = &self.size_input {
            sizes = [i64::from(size.width), i64::from(size.height)].repeat(rows);
            let tensor = TensorRef::from_array_view((vec![rows as i64, 2], sizes.as_slice()))
                .map_err(run_error)?;
            inputs.push((name.as_str(), tensor.into()));
        }
        let mut outputs = self.session.run(inputs).map_err(run_error)?;
        self.signature
            .outputs
            .iter()
            .map(|output| {
                let value = outputs.remove(&output.name).ok_or_else(|| {
                    EngineError::Run(format!("{} gave no output {}", self.path, output.name))
                })?;
                share(value).map_err(EngineError::Run)
            })
            .collect()
    }
}

/// What a run's error means for the engine.
fn run_error(device: Device, detail: String) -> EngineError {
    match device {
        Device::Cuda(_) if is_device_lost(&detail) => EngineError::DeviceLost { device, detail },
        _ => EngineError::Run(detail),
    }
}

/// Whether a run's error names a CUDA error after which nothing runs on the device again: it is gone, or its
/// context is spoilt, which every later call answers with the same error. Memory that is short is not among them.
///
/// The runtime writes them as `CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; ...`.
fn is_device_lost(detail: &str) -> bool {
    detail.split("CUDA failure ").skip(1).any(|after| {
        let number: String = after.chars().take_while(char::is_ascii_digit).collect();
        matches!(
            number.parse(),
            Ok(46 // devices unavailable
                | 100 // no device
                | 201 // invalid context
                | 214 // uncorrectable ECC error
                | 220 // uncorrectable NVLink error
                | 700 // illegal address
                | 702 // launch timeout
                | 709 // context destroyed
                | 710 // device-side assertion
                | 714 // hardware stack error
                | 715 // illegal instruction
                | 716 // misaligned address
                | 717 // invalid address space
                | 718 // invalid program counter
                | 719 // launch failure
                | 999) // unknown: the driver has given up
        )
    })
}

/// A view of a tensor's elements under a shape of the caller's.
fn view<'t>(tensor: &'t Tensor, shape: &[i64]) -> ort::Result<SessionInputValue<'t>> {
    fn typed<'t, T>(tensor: &'t Tensor, shape: &[i64]) -> ort::Result<SessionInputValue<'t>>
    where
        T: Element + ort::value::PrimitiveTensorElementType + std::fmt::Debug,
    {
        let elements = tensor.as_slice::<T>().unwrap_or_default();
        Ok(TensorRef::from_array_view((shape.to_vec(), elements))?.into())
    }
    match tensor.dtype() {
        DType::F32 => typed::<f32>(tensor, shape),
        DType::F16 => typed::<half::f16>(tensor, shape),
        DType::U8 => typed::<u8>(tensor, shape),
        DType::I32 => typed::<i32>(tensor, shape),
        DType::I64 => typed::<i64>(tensor, shape),
    }
}

/// Turns an output into a tensor that shares its memory, which goes back to the runtime with the last reader.
fn share(value: DynValue) -> Result<Tensor, String> {
    struct Owner<T>(DynValue, std::marker::PhantomData<fn() -> T>);
    impl<T: Element + ort::value::PrimitiveTensorElementType> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            // The type was read from this very value, so the extraction cannot fail.
            self.0
                .try_extract_tensor::<T>()
                .map_or(&[], |(_, elements)| bytemuck::cast_slice(elements))
        }
    }
    fn bytes<T>(value: DynValue) -> Bytes
    where
        T: Element + ort::value::PrimitiveTensorElementType,
    {
        Bytes::from_owner(Owner::<T>(value, std::marker::PhantomData))
    }
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err("an output is not a tensor".to_owned());
    };
    let dtype =
        dtype(*ty).ok_or_else(|| format!("an output's element type {ty} is not supported"))?;
    let shape: Vec<usize> = shape
        .iter()
        .map(|length| usize::try_from(*length).unwrap_or(0))
        .collect();
    let bytes = match dtype {
        DType::F32 => bytes::<f32>(value),
        DType::F16 => bytes::<half::f16>(value),
        DType::U8 => bytes::<u8>(value),
        DType::I32 => bytes::<i32>(value),
        DType::I64 => bytes::<i64>(value),
    };
    Tensor::from_shared(dtype, &shape, bytes).map_err(|error| error.to_string())
}

fn read_signature(
    session: &Session,
    input: Option<&str>,
    size_input: Option<&(String, ImageSize)>,
) -> Result<Signature, String> {
    let names = || {
        session
            .inputs()
            .iter()
            .map(|input| input.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let pictures = match input {
        Some(name) => session.inputs().iter().find(|input| input.name() == name),
        None => session
            .inputs()
            .iter()
            .find(|input| size_input.is_none_or(|(name, _)| name != input.name())),
    };
    let pictures = pictures.ok_or_else(|| match input {
        Some(name) => format!("there is no input {name}; there are: {}", names()),
        None => "there is no input for pictures".to_owned(),
    })?;
    let given =
        |name: &str| name == pictures.name() || size_input.is_some_and(|(size, _)| size == name);
    if let Some((name, _)) = size_input
        && !session.inputs().iter().any(|input| input.name() == name)
    {
        return Err(format!("there is no input {name}; there are: {}", names()));
    }
    if let Some(unknown) = session.inputs().iter().find(|input| !given(input.name())) {
        return Err(format!(
            "the card gives nothing for the input {}",
            unknown.name()
        ));
    }
    let outputs = session
        .outputs()
        .iter()
        .map(|output| tensor_signature(output.name(), output.dtype()));
    Ok(Signature {
        input: tensor_signature(pictures.name(), pictures.dtype())?,
        outputs: outputs.collect::<Result<_, _>>()?,
    })
}

fn tensor_signature(name: &str, value: &ValueType) -> Result<TensorSignature, String> {
    let ValueType::Tensor { ty, shape, .. } = value else {
        return Err(format!("{name} is not a tensor"));
    };
    Ok(TensorSignature {
        name: name.to_owned(),
        dtype: dtype(*ty)
            .ok_or_else(|| format!("the element type {ty} of {name} is not supported"))?,
        // A negative length is one that varies.
        shape: shape
            .iter()
            .map(|length| usize::try_from(*length).ok())
            .collect(),
    })
}

fn dtype(ty: TensorElementType) -> Option<DType> {
    Some(match ty {
        TensorElementType::Float32 => DType::F32,
        TensorElementType::Float16 => DType::F16,
        TensorElementType::Uint8 => DType::U8,
        TensorElementType::Int32 => DType::I32,
        TensorElementType::Int64 => DType::I64,
        _ => return None,
    })
}

/// The runtime's messages run over several lines; logs and replies want one.
fn one_line(error: &dyn std::fmt::Display) -> String {
    error
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_spoils_the_device_is_told_from_one_that_does_not() {
        let lost = "Non-zero status code returned while running Conv node. Name:'c' Status Message: CUDA failure 700: \
                    an illegal memory access was encountered ; GPU=1 ; hostname=h ; expr=cudaStreamSynchronize(s);";
        let error = run_error(Device::Cuda(1), lost.to_owned());
        assert!(matches!(
            error,
            EngineError::DeviceLost {
                device: Device::Cuda(1),
                ..
            }
        ));
        for survives in [
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=h",
            "CUDNN failure 3000: CUDNN_STATUS_NOT_SUPPORTED ; GPU=0",
            "Got invalid dimensions for input: images",
            "CUDA failure ",
        ] {
            let error = run_error(Device::Cuda(0), survives.to_owned());
            assert!(matches!(error, EngineError::Run(_)), "{survives}");
        }
        assert!(matches!(
            run_error(Device::Cpu, lost.to_owned()),
            EngineError::Run(_)
        ));
    }
}

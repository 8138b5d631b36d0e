//! Placement: which instances a card's `[[instances]]` ask for on this machine.

use std::num::NonZeroUsize;

use super::LoadError;
use crate::model::{Device, DeviceRequest, InstanceSpec};

/// One instance to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) device: Device,
    pub(super) threads: usize,
}

/// What this machine has.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Cores that the process may use: cgroup quota and affinity counted.
    pub(super) cores: usize,
    /// GPUs by number.
    pub(super) gpus: Vec<u32>,
}

/// Instances of all models together. Each has a thread and its own copy of the weights; a number beyond this
/// is a mistake in a card.
pub(super) const MAX_INSTANCES: usize = 1_024;

// === impl Machine ===

impl Machine {
    /// Looks at this one.
    pub(super) fn here() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            gpus: crate::device::gpus(),
        }
    }

    /// The instances that `specs` ask for.
    ///
    /// `auto` takes every GPU, or with none the CPU. On a CPU the default is as many instances as fill the
    /// cores: two of one thread each run as much as one of two threads, and do not spin in between.
    pub(super) fn place(&self, specs: &[InstanceSpec]) -> Result<Vec<Planned>, LoadError> {
        let mut planned = Vec::new();
        for spec in specs {
            let on = |device: Device, default: usize| {
                let one = Planned {
                    device,
                    threads: spec.threads.get(),
                };
                std::iter::repeat_n(one, spec.count.map_or(default, NonZeroUsize::get))
            };
            let fill_cores = (self.cores / spec.threads).max(1);
            match spec.device {
                DeviceRequest::Exact(Device::Cpu) => planned.extend(on(Device::Cpu, fill_cores)),
                DeviceRequest::Exact(device) => planned.extend(on(device, 1)),
                DeviceRequest::Auto if self.gpus.is_empty() => {
                    planned.extend(on(Device::Cpu, fill_cores))
                }
                DeviceRequest::Auto => {
                    planned.extend(self.gpus.iter().flat_map(|gpu| on(Device::Cuda(*gpu), 1)));
                }
            }
            if planned.len() > MAX_INSTANCES {
                return Err(LoadError::TooManyInstances {
                    asked: planned.len(),
                    most: MAX_INSTANCES,
                });
            }
        }
        Ok(planned)
    }

    /// What is to be told of `auto` entries that found no GPU; empty when there are none.
    pub(super) fn fell_back(&self, specs: &[InstanceSpec]) -> String {
        let automatic = specs.iter().any(|spec| spec.device == DeviceRequest::Auto);
        match automatic && self.gpus.is_empty() {
            true => "device auto: there is no GPU, running on the CPU".to_owned(),
            false => String::new(),
        }
    }

    /// The same machine without its GPUs, for `auto` to fall back to.
    pub(super) fn without_gpus(&self) -> Self {
        Self {
            gpus: Vec::new(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(device: DeviceRequest, count: Option<usize>, threads: usize) -> InstanceSpec {
        let count = count.map(|count| NonZeroUsize::new(count).unwrap());
        InstanceSpec {
            device,
            count,
            threads: NonZeroUsize::new(threads).unwrap(),
        }
    }

    fn machine(cores: usize, gpus: &[u32]) -> Machine {
        Machine {
            cores,
            gpus: gpus.to_vec(),
        }
    }

    #[test]
    fn by_default_a_cpu_gets_one_single_thread_instance_a_core() {
        let one = Planned {
            device: Device::Cpu,
            threads: 1,
        };
        assert_eq!(
            machine(4, &[]).place(&[InstanceSpec::default()]).unwrap(),
            [one; 4]
        );
        let two_threads = spec(DeviceRequest::Exact(Device::Cpu), None, 2);
        assert_eq!(machine(5, &[]).place(&[two_threads]).unwrap().len(), 2);
    }

    #[test]
    fn by_default_each_gpu_gets_one_instance() {
        let planned = machine(64, &[0, 1, 3])
            .place(&[InstanceSpec::default()])
            .unwrap();
        let devices: Vec<Device> = planned.iter().map(|planned| planned.device).collect();
        assert_eq!(devices, [Device::Cuda(0), Device::Cuda(1), Device::Cuda(3)]);
    }

    #[test]
    fn a_device_that_is_named_is_not_second_guessed() {
        let exact = spec(DeviceRequest::Exact(Device::Cuda(7)), None, 1);
        assert_eq!(
            machine(2, &[]).place(&[exact]).unwrap(),
            [Planned {
                device: Device::Cuda(7),
                threads: 1
            }]
        );
    }

    #[test]
    fn a_count_beyond_reason_is_refused() {
        let many = spec(DeviceRequest::Auto, Some(256), 1);
        assert!(
            machine(2, &[])
                .place(&[many.clone(), many.clone(), many.clone(), many.clone(), many])
                .is_err()
        );
    }
}

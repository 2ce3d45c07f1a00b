//! Programs with their memory, ready to be launched again and again.

use super::driver::{Address, Prepared, Shape, reach};
use super::{Buffer, Executable, KernelReport, Report, RunError};
use crate::emit::{LaunchInfo, TensorMapSpec};
use std::time::Instant;

/// An executable with memory: parameters and tensor maps are in place, so that a launch is one call of the driver per
/// kernel.
#[derive(Debug)]
pub struct Bound<'a> {
    executable: &'a Executable,
    /// Keeps the buffers that the parameters name, and keeps them unchanged by the host.
    _memory: &'a [Buffer],
    /// One per kernel; `None` for a kernel with nothing to do.
    kernels: Vec<Option<Prepared>>,
}

/// Blocks of a cluster that every GPU with clusters can place (CUDA C++ Programming Guide, "Thread Block Clusters").
const PORTABLE_CLUSTER: usize = 8;

impl<'a> Bound<'a> {
    pub(super) fn new(executable: &'a Executable, memory: &'a [Buffer]) -> Result<Self, RunError> {
        let kernels = (0..executable.functions.len()).map(|k| prepare(executable, k, memory));
        Ok(Self { executable, _memory: memory, kernels: kernels.collect::<Result<_, _>>()? })
    }

    /// Starts every kernel, in order, and does not wait.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn launch(&self) -> Result<(), RunError> {
        self.kernels.iter().flatten().try_for_each(|k| self.executable.device.driver.launch(k))
    }

    /// Times of whole runs on the device, in seconds, after `warmup` runs that are not timed. Before every run all of
    /// `evict` is overwritten, outside the measured time: as long as the L2 cache or longer, it leaves none of the
    /// program's tensors there.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn time(&self, warmup: usize, repeats: usize, mut evict: Option<&mut Buffer>) -> Result<Vec<f64>, RunError> {
        let driver = &self.executable.device.driver;
        (0..warmup).try_for_each(|_| self.launch())?;
        let mut marks = vec![];
        for _ in 0..repeats {
            if let Some(buffer) = &mut evict {
                buffer.fill(0)?;
            }
            let start = driver.mark()?;
            self.launch()?;
            marks.push((start, driver.mark()?));
        }
        marks.into_iter().map(|(start, end)| driver.between(start, end)).collect()
    }

    /// Times of launching on the host, in seconds: the calls alone, while the device works on earlier ones.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn host_times(&self, launches: usize) -> Result<Vec<f64>, RunError> {
        let mut seconds = Vec::with_capacity(launches);
        for _ in 0..launches {
            let start = Instant::now();
            self.launch()?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        self.executable.device.wait()?;
        Ok(seconds)
    }

    /// Runs it once; the time of each kernel.
    pub(super) fn run(&self) -> Result<Report, RunError> {
        let seconds = (0..self.kernels.len()).map(|k| self.kernel_time(k)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.report(&seconds))
    }

    /// Runs the kernel once; its time.
    pub(super) fn kernel_time(&self, k: usize) -> Result<f64, RunError> {
        let Some(kernel) = &self.kernels[k] else { return Ok(0.0) };
        let driver = &self.executable.device.driver;
        let start = driver.mark()?;
        let launched = driver.launch(kernel);
        let seconds = driver.between(start, driver.mark()?)?;
        launched.map(|()| seconds)
    }

    /// The report for these times of the kernels.
    pub(super) fn report(&self, seconds: &[f64]) -> Report {
        let executable = self.executable;
        let kernel = |(k, &seconds): (usize, &f64)| {
            let (registers, local_bytes) = executable.device.driver.resources(executable.functions[k]);
            KernelReport { name: executable.source.kernels[k].kernel.clone(), seconds, registers, local_bytes }
        };
        Report { seconds: seconds.iter().sum(), kernels: seconds.iter().enumerate().map(kernel).collect() }
    }
}

/// Puts a kernel's parameters in place.
fn prepare(executable: &Executable, k: usize, memory: &[Buffer]) -> Result<Option<Prepared>, RunError> {
    let places: Vec<Place> = memory.iter().map(|b| Place { address: b.address(), bytes: b.len() }).collect();
    prepare_at(executable, k, &places)
}

/// Memory that a parameter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub address: Address,
    pub bytes: usize,
}

/// Puts a kernel's parameters in place: a place per tensor of the program, and the status words'.
pub(super) fn prepare_at(executable: &Executable, k: usize, memory: &[Place]) -> Result<Option<Prepared>, RunError> {
    let info = &executable.source.kernels[k];
    if info.grid == 0 {
        return Ok(None);
    }
    let device = &executable.device;
    let grid = blocks(info, device.multiprocessors())
        .map_err(|reason| RunError::Launch { kernel: info.kernel.clone(), reason })?;
    let status = memory[memory.len() - 1].address;
    let tensors = info.tensors.iter().map(|t| memory[t.at()].address);
    let roster = executable.rosters[k].as_ref().map(Buffer::address);
    let addresses = tensors.chain([status]).chain(roster).collect();
    let map = |spec: &TensorMapSpec| {
        let place = memory[spec.tensor.at()];
        if reach(spec).is_none_or(|bytes| bytes > place.bytes as u64) {
            let reason = format!("a tensor map leaves its tensor's {} bytes: {spec:?}", place.bytes);
            return Err(RunError::Launch { kernel: info.kernel.clone(), reason });
        }
        device.driver.encode(spec, place.address)
    };
    let maps = info.tensor_maps.iter().map(map).collect::<Result<Vec<_>, _>>()?;
    let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let shape =
        Shape { grid, block: word(info.block), shared_bytes: word(info.shared_bytes), cluster: word(info.cluster) };
    Ok(Some(Prepared::new(executable.functions[k], shape, addresses, maps, executable.sizes.clone())))
}

/// Blocks to launch: whole clusters, and of a persistent kernel no more than the multiprocessors hold.
fn blocks(info: &LaunchInfo, multiprocessors: usize) -> Result<u32, String> {
    let cluster = info.cluster.max(1);
    if cluster > PORTABLE_CLUSTER || !info.grid.is_multiple_of(cluster) {
        return Err(format!("{} blocks in clusters of {cluster}", info.grid));
    }
    let grid = match info.persistent {
        _ if info.roster.is_some() => info.roster.as_ref().map_or(info.grid, |r| r.blocks),
        None => info.grid,
        Some(each) => {
            let room = each.max(1) * multiprocessors.max(1);
            info.grid.min((room - room % cluster).max(cluster))
        }
    };
    // The limit of a grid's x dimension.
    if grid > i32::MAX as usize { Err(format!("{grid} blocks")) } else { Ok(grid as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(grid: usize, cluster: usize, persistent: Option<usize>) -> LaunchInfo {
        LaunchInfo {
            kernel: "k".to_string(),
            function: "k".to_string(),
            grid,
            block: 128,
            shared_bytes: 0,
            tensors: vec![],
            tensor_maps: vec![],
            cluster,
            persistent,
            roster: None,
            checked_loads: vec![],
        }
    }

    #[test]
    fn persistent_kernels_have_as_many_blocks_as_fit_in_whole_clusters() {
        assert_eq!(blocks(&info(1000, 1, None), 132), Ok(1000));
        assert_eq!(blocks(&info(1000, 1, Some(1)), 132), Ok(132));
        assert_eq!(blocks(&info(1000, 1, Some(2)), 132), Ok(264));
        assert_eq!(blocks(&info(100, 1, Some(1)), 132), Ok(100));
        assert_eq!(blocks(&info(1000, 2, Some(1)), 133), Ok(132));
        assert_eq!(blocks(&info(1000, 8, Some(1)), 4), Ok(8));
    }

    #[test]
    fn what_the_device_cannot_place_is_refused() {
        assert!(blocks(&info(1001, 2, None), 132).is_err());
        assert!(blocks(&info(32, 16, None), 132).is_err());
        assert!(blocks(&info(1 << 31, 1, None), 132).is_err());
    }
}

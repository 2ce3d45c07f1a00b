//! Inputs from files. Headers first: shapes settle sizes, and a wrong file should be told before a long one is read.

use super::args::Inputs;
use super::failure::Failure;
use super::ui::Ui;
use super::values::InputSource;
use einloom::formats::{FileError, Format, Npy, SafeTensors, from_stored};
use einloom::random::random_tensor;
use einloom::{Error, Finding, Planned, Tensor};
use einloom_cascade::{Cascade, TensorId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which file holds which input; the files' headers are read and checked.
#[derive(Debug)]
pub(crate) struct Sources {
    files: Vec<SafeTensors>,
    by_input: BTreeMap<String, Place>,
    shapes: BTreeMap<String, Vec<usize>>,
    cast: bool,
    seed: u64,
}

#[derive(Debug)]
enum Place {
    Array(PathBuf, Npy),
    Entry { file: usize, path: PathBuf, name: String },
}

impl Sources {
    /// Opens the files.
    pub fn open(ui: &Ui, cascade: &Cascade, args: &Inputs) -> Result<Self, Failure> {
        let mut sources = Self {
            files: vec![],
            by_input: BTreeMap::new(),
            shapes: BTreeMap::new(),
            cast: args.cast,
            seed: args.seed,
        };
        for source in &args.inputs {
            match source {
                InputSource::One { tensor, file, entry } => sources.one(cascade, tensor, file, entry.as_deref())?,
                InputSource::ByName { file } => sources.by_name(ui, cascade, file)?,
            }
        }
        Ok(sources)
    }

    /// The shapes of the inputs that files hold.
    pub fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.shapes.clone()
    }

    fn one(&mut self, cascade: &Cascade, tensor: &str, path: &Path, entry: Option<&str>) -> Result<(), Failure> {
        if !cascade.inputs().any(|t| cascade[t].name == tensor) {
            let names: Vec<&str> = cascade.inputs().map(|t| cascade[t].name.as_str()).collect();
            let finding = Finding::error("unknown-tensor", format!("there is no input {tensor}"));
            let hint = format!("the inputs are {}", names.join(", "));
            return Err(Error::Input(finding.hint(Some(hint))).into());
        }
        match (Format::of(path)?, entry) {
            (Format::Npy, None) => {
                let file = Npy::open(path)?;
                self.add(tensor, file.shape().to_vec(), Place::Array(path.to_owned(), file))
            }
            (Format::Npy, Some(_)) => Err(FileError::new(path, "a .npy file holds one array without a name").into()),
            (Format::SafeTensors, entry) => {
                let file = SafeTensors::open(path)?;
                let name = entry.unwrap_or(tensor);
                let Some(shape) = file.shape(name).map(<[usize]>::to_vec) else {
                    return Err(file.missing(name).into());
                };
                self.files.push(file);
                let place = Place::Entry { file: self.files.len() - 1, path: path.to_owned(), name: name.into() };
                self.add(tensor, shape, place)
            }
        }
    }

    fn by_name(&mut self, ui: &Ui, cascade: &Cascade, path: &Path) -> Result<(), Failure> {
        if Format::of(path)? == Format::Npy {
            let hint = format!("say which input it is: --input NAME={}", path.display());
            return Err(FileError::new(path, "a .npy file holds one array without a name").hint(hint).into());
        }
        let file = SafeTensors::open(path)?;
        let taken: Vec<(String, Vec<usize>)> = cascade
            .inputs()
            .map(|t| cascade[t].name.as_str())
            .filter_map(|name| Some((name.to_owned(), file.shape(name)?.to_vec())))
            .collect();
        if taken.is_empty() {
            let names: Vec<&str> = cascade.inputs().map(|t| cascade[t].name.as_str()).collect();
            let message = format!("it has no tensor with the name of an input ({})", names.join(", "));
            let hint = format!("{}; take one as --input NAME={}:ITS_NAME", file.contents(), path.display());
            return Err(FileError::new(path, message).hint(hint).into());
        }
        let names: Vec<&str> = taken.iter().map(|t| t.0.as_str()).collect();
        ui.note(&format!("{} from {}", names.join(", "), path.display()));
        self.files.push(file);
        let at = self.files.len() - 1;
        for (name, shape) in taken {
            let place = Place::Entry { file: at, path: path.to_owned(), name: name.clone() };
            self.add(&name, shape, place)?;
        }
        Ok(())
    }

    fn add(&mut self, tensor: &str, shape: Vec<usize>, place: Place) -> Result<(), Failure> {
        if self.by_input.insert(tensor.to_owned(), place).is_some() {
            let message = format!("two files are given for the input {tensor}");
            return Err(Failure::usage(message, "give each input once"));
        }
        self.shapes.insert(tensor.to_owned(), shape);
        Ok(())
    }

    /// Every input of the planned program: from its file, or random.
    pub fn load(mut self, ui: &Ui, planned: &Planned) -> Result<BTreeMap<String, Tensor>, Failure> {
        let cascade = planned.cascade();
        let mut tensors = BTreeMap::new();
        let mut random = vec![];
        for id in cascade.inputs() {
            let name = &cascade[id].name;
            let tensor = match self.by_input.remove(name) {
                Some(place) => self.read(planned, id, place)?,
                None => {
                    random.push(name.as_str());
                    self.random(planned, id)?
                }
            };
            tensors.insert(name.clone(), tensor);
        }
        if !random.is_empty() {
            ui.note(&format!("{} random, seed {}", random.join(", "), self.seed));
        }
        Ok(tensors)
    }

    fn random(&self, planned: &Planned, id: TensorId) -> Result<Tensor, Failure> {
        Ok(random_tensor(planned.cascade(), planned.bound(), id, planned.dtype(id), self.seed)?)
    }

    fn read(&mut self, planned: &Planned, id: TensorId, place: Place) -> Result<Tensor, Failure> {
        let (stored, path) = match place {
            Place::Array(path, file) => (file.read()?, path),
            Place::Entry { file, path, name } => (self.files[file].read(&name)?, path),
        };
        let name = &planned.cascade()[id].name;
        let wrong = |message: String, hint: Option<String>| {
            let finding = Finding::error("tensor", format!("{name} from {}: {message}", path.display()));
            Failure::from(Error::Input(finding.hint(hint).at(Some(planned.cascade()[id].span))))
        };
        let dims = stored.dims.clone();
        let dtype = planned.dtype(id);
        let bytes = from_stored(stored, dtype, self.cast).map_err(|e| wrong(e.message, Some(e.hint)))?;
        Tensor::from_bytes(dtype, &dims, bytes)
            .ok_or_else(|| wrong("it holds fewer elements than its shape says".into(), None))
    }
}

/// Random tensors for all inputs.
pub(crate) fn random(planned: &Planned, seed: u64) -> Result<BTreeMap<String, Tensor>, Error> {
    let cascade = planned.cascade();
    let one = |id: TensorId| {
        let tensor = random_tensor(cascade, planned.bound(), id, planned.dtype(id), seed)?;
        Ok((cascade[id].name.clone(), tensor))
    };
    cascade.inputs().map(one).collect()
}

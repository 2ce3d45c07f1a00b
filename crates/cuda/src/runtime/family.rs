//! Executables of one program at many sizes, which share code.
//!
//! The first size of a size class ([`Template`]) gets code of its own, with every size a literal. The second one has the
//! class's template compiled, and whatever size comes after runs that: nothing is compiled again. A template that does not
//! compile (a size may decide the length of an array) is not tried twice.

use super::executable::Code;
use super::{Cache, CompileError, Compiler, Device, Executable, RunError};
use crate::emit::{Pieces, Source, Template, emit};
use einloom_tile::Program;

/// The size classes of one program.
#[derive(Debug, Default)]
pub struct Family {
    members: Vec<Member>,
}

/// Where an executable's code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Compiled for these sizes alone.
    Own,
    /// Compiled for the size class that these sizes are in, with so many parameters.
    Class {
        /// Literals that became parameters.
        parameters: usize,
    },
    /// There already.
    Shared,
}

/// One size class.
#[derive(Debug)]
struct Member {
    /// The first source of the class, and what has to be alike beside the text.
    pieces: Pieces,
    launches: Vec<(usize, usize, usize)>,
    /// That source's own code.
    own: Code,
    class: Class,
}

#[derive(Debug)]
enum Class {
    /// One size so far.
    Alone,
    Compiled(Template, Code),
    /// Its template does not compile.
    Never,
}

/// Beyond this many classes the oldest goes.
const MOST: usize = 64;

impl Family {
    /// Emits a program for the device, and finds or compiles code for it.
    ///
    /// # Errors
    /// If it cannot be emitted, compiled or loaded.
    pub fn executable(
        &mut self,
        program: &Program,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
    ) -> Result<(Executable, Found), RunError> {
        let source = emit(program, &device.target())?;
        let pieces = Pieces::of(&source.text);
        let launches = launches(&source);
        for member in self.members.iter_mut().filter(|m| m.launches == launches) {
            if let Some((code, sizes, found)) = member.code(&source, &pieces, device, compiler, cache)? {
                return Ok((Executable::of_code(program, source, device, &code, sizes)?, found));
            }
        }
        let own = Code::new(&source, &source.text, device, compiler, cache)?;
        if self.members.len() >= MOST {
            self.members.remove(0);
        }
        self.members.push(Member { pieces, launches, own: own.clone(), class: Class::Alone });
        Ok((Executable::of_code(program, source, device, &own, vec![])?, Found::Own))
    }

    /// How many size classes there are.
    pub fn classes(&self) -> usize {
        self.members.len()
    }
}

/// Of each kernel what is set when it is loaded, or not told by the text.
fn launches(source: &Source) -> Vec<(usize, usize, usize)> {
    source.kernels.iter().map(|k| (k.block, k.shared_bytes, k.cluster)).collect()
}

impl Member {
    /// Code for a source of this class, with its sizes; `None` if it is not in the class.
    fn code(
        &mut self,
        source: &Source,
        pieces: &Pieces,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
    ) -> Result<Option<(Code, Vec<u32>, Found)>, RunError> {
        if self.pieces == *pieces {
            return Ok(Some((self.own.clone(), vec![], Found::Shared)));
        }
        match &self.class {
            Class::Never => Ok(None),
            Class::Compiled(template, code) => match template.values(pieces) {
                Some(sizes) => Ok(Some((code.clone(), sizes, Found::Shared))),
                None => self.wider(source, pieces, device, compiler, cache),
            },
            Class::Alone => self.wider(source, pieces, device, compiler, cache),
        }
    }

    /// A template that has room for this source too.
    fn wider(
        &mut self,
        source: &Source,
        pieces: &Pieces,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
    ) -> Result<Option<(Code, Vec<u32>, Found)>, RunError> {
        let before = match &self.class {
            Class::Compiled(template, _) => Some(template),
            Class::Alone | Class::Never => None,
        };
        let Some(template) = Template::of(&self.pieces, pieces).and_then(|t| t.joined(before)) else { return Ok(None) };
        let Some(sizes) = template.values(pieces) else { return Ok(None) };
        match Code::new(source, &template.text(), device, compiler, cache) {
            Ok(code) => {
                let found = Found::Class { parameters: template.parameters() };
                self.class = Class::Compiled(template, code.clone());
                Ok(Some((code, sizes, found)))
            }
            Err(RunError::Compile(CompileError::Rejected { .. } | CompileError::Degraded { .. })) => {
                if before.is_none() {
                    self.class = Class::Never;
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

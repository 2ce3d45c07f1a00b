//! Which instructions to use, found out when the program runs.

/// A family of instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86-64 with AVX-512 F, BW, CD, DQ and VL.
    Avx512,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// What every processor of the target has.
    Portable,
}

impl Isa {
    /// All of them, the fastest first.
    pub const ALL: [Isa; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// The fastest that this processor has.
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                use std::arch::is_x86_feature_detected as has;
                has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512cd")
                    && has!("avx512dq")
                    && has!("avx512vl")
                    && Self::Avx2.is_available()
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                use std::arch::is_x86_feature_detected as has;
                has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::Portable => true,
        }
    }

    /// The name that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }
}

/// An [`Isa`] that this processor was seen to have: the proof that the `unsafe` calls of [`dispatch`] ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(Isa);

impl Token {
    /// `None` if the processor lacks it.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        isa.is_available().then_some(Self(isa))
    }

    /// Which one.
    pub(crate) fn isa(self) -> Isa {
        self.0
    }
}

/// Work that is to be compiled once per instruction set. `run` must be `#[inline(always)]`, and so must everything in
/// it that is meant to be vectorised: that is what gives it the caller's instructions.
pub(crate) trait Work {
    /// What it gives.
    type Output;
    /// Does it.
    fn run<I: Instructions>(self) -> Self::Output;
}

/// What code that is compiled once per instruction set may know about it.
pub(crate) trait Instructions {
    /// A fused multiply-add is one instruction.
    const FMA: bool;
    /// AVX-512 as in [`Isa::Avx512`]. Only [`dispatch`] names the type that says so, after it has seen a [`Token`].
    const AVX512: bool;
}

pub(crate) struct WithAvx512;
pub(crate) struct WithFma;
pub(crate) struct Plain;

impl Instructions for WithAvx512 {
    const FMA: bool = true;
    const AVX512: bool = true;
}

impl Instructions for WithFma {
    const FMA: bool = true;
    const AVX512: bool = false;
}

impl Instructions for Plain {
    const FMA: bool = cfg!(target_arch = "aarch64");
    const AVX512: bool = false;
}

/// Runs `work` with the token's instructions.
pub(crate) fn dispatch<W: Work>(token: Token, work: W) -> W::Output {
    match token.isa() {
        // SAFETY: the token says that the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { with_avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { with_avx2(work) },
        _ => work.run::<Plain>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn with_avx512<W: Work>(work: W) -> W::Output {
    work.run::<WithAvx512>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn with_avx2<W: Work>(work: W) -> W::Output {
    work.run::<WithFma>()
}

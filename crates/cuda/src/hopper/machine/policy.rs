//! Who goes next. Whatever the hardware may do, some policy does.

/// Which role goes on when several can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preference {
    /// Any.
    Random,
    /// The producer whenever it can.
    Producer,
    /// This consumer whenever it can.
    Consumer(usize),
    /// Any role of this block of a cluster whenever one can.
    Block(usize),
}

/// When copies land and products complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// Before any role's next step.
    Early,
    /// Only when no role can go on otherwise.
    Late,
    /// Any time.
    Random,
}

/// One way to choose among everything that may happen next. The same policy makes the same choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Among roles.
    pub roles: Preference,
    /// Between roles, and copies and products in flight.
    pub completions: Completion,
    /// For what is left open.
    pub seed: u64,
}

impl Policy {
    /// Every extreme, and `random` others.
    pub fn all(consumers: usize, random: u64) -> Vec<Self> {
        Self::of_clusters(1, consumers, random)
    }

    /// As [`Self::all`], for clusters of so many blocks.
    pub fn of_clusters(blocks: usize, consumers: usize, random: u64) -> Vec<Self> {
        let mut roles = vec![Preference::Producer, Preference::Random];
        roles.extend((0..consumers).map(Preference::Consumer));
        roles.extend((0..blocks).filter(|_| blocks > 1).map(Preference::Block));
        let mut out = vec![];
        for completions in [Completion::Late, Completion::Early, Completion::Random] {
            out.extend(roles.iter().map(|&roles| Self { roles, completions, seed: 0 }));
        }
        let any = |seed| Self { roles: Preference::Random, completions: Completion::Random, seed };
        out.extend((1..=random).map(any));
        out
    }
}

/// Numbers for choices: xorshift64 (G. Marsaglia, 2003).
pub(super) struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        // A multiplication spreads neighbouring seeds; the state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// One of `0..n`; 0 if there is none.
    pub fn of(&mut self, n: usize) -> usize {
        if self.0 == 0 {
            self.0 = 1;
        }
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n.max(1) as u64) as usize
    }
}

//! Lower bounds on traffic.
//!
//! *Compulsory*: whatever the order, every element of a tensor that the kernel reads must come in at least once, and
//! every element that it writes must go out once. It holds at every level. Where which elements are touched depends on
//! data (a gather), the fewest possible count.
//!
//! *By capacity*: a sum of products reads more than that if its factors do not fit. [`ProjectiveNest`] bounds it from
//! the linear program of its loop nest; `spaces` finds the nests in a kernel: the points of each contraction, and those
//! of chains of two, where what one contraction gives is what another sums, by elementwise functions and statistics
//! of rows in between. In such a chain each value of the first needs whole rows of its factors, which gives the
//! published bound of attention, `4 q x d² / M` with all dimensions `d`, where `M ≥ d²` (Saha and Ye, "I/O Complexity of
//! Attention", arXiv 2402.07443); for less memory it is never better to hold whole rows, and the bound is that of the
//! two contractions by themselves, of order `q x d / √M`. The smaller of the two changes over at `M = d²` of itself.
//!
//! On machines that count elements rows of such chains are held whole, so that groups of them are whole in number:
//! [`ProjectiveNest::incoming_in_groups`] says under which condition, and proves it; [`ProjectiveNest::incoming_with_sums`] and
//! [`ProjectiveNest::incoming_beside_a_side`] and [`ProjectiveNest::incoming_in_results`] do for orders that make weights again for parts of a row's results. So are rows of a factor
//! that comes in once: [`ProjectiveNest::incoming_beside_a_factor_or_sums`]; and tiles of a product's sums: [`ProjectiveNest::incoming_in_tiles`].
//!
//! The largest of all is taken, for one kernel: what it reads and writes is given, not what else could be fused.

mod apart;
mod beside;
mod between;
mod few;
mod filled;
mod flow;
mod least;
mod left;
mod lines;
pub(crate) mod needed;
mod nest;
mod orders;
mod prices;
mod results;
mod simplex;
mod spaces;
mod tiles;

pub use beside::Beside;
pub(crate) use least::compulsory_in_any_tiles;
pub(crate) use left::read_in_any_tiles;
pub use nest::{Exponents, Incoming, NestArray, ProjectiveNest};
pub(crate) use spaces::{Needed, Spaces};

use crate::levels::{Reuse, Traffic};
use crate::region::Lean;

/// What a bound on traffic rests on, and with that for which orders of the computation it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundFrom {
    /// Everything comes in and goes out once, in any order.
    #[default]
    Once,
    /// A contraction's projections, in any order.
    Contraction,
    /// Those of two contractions, of which the first needs whole rows for each weight of the second, in any order: weights may be made
    /// again and again.
    Parts,
    /// Those of two contractions, each by itself, in any order.
    Apart,
    /// Those of two contractions of whole rows, in orders that make every weight once.
    Rows,
    /// Orders in which sums stay until they are complete: [`ProjectiveNest::incoming_with_sums`].
    Sums,
    /// Orders in which rows stay, or all that weights are made of does: [`ProjectiveNest::incoming_beside_a_side`]; and those in groups,
    /// which take more then.
    Side,
    /// Orders in which a side stays and groups of what is beside it follow one another, or tiles of results: [`ProjectiveNest::incoming_in_results`].
    Results,
    /// Orders in groups of rows: [`ProjectiveNest::incoming_in_groups`].
    Groups,
    /// Orders in which a factor of a contraction comes in once, row by row, or sums stay for long: [`ProjectiveNest::incoming_beside_a_factor_or_sums`].
    Factor,
    /// Orders in which groups of rows or tiles of a product's sums follow one another: [`ProjectiveNest::incoming_in_tiles`].
    Tiles,
}

impl BoundFrom {
    /// One word for it, as in reports for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Contraction => "contraction",
            Self::Parts => "parts",
            Self::Apart => "apart",
            Self::Rows => "rows",
            Self::Sums => "sums",
            Self::Side => "side",
            Self::Results => "results",
            Self::Groups => "groups",
            Self::Factor => "factor",
            Self::Tiles => "tiles",
        }
    }

    /// What such a bound is, with the orders that it holds for.
    pub fn text(self) -> String {
        let any = match self {
            Self::Once => "everything once",
            Self::Contraction => "what a product's projections need",
            Self::Parts => "what a product's projections need if its weights are made again and again",
            Self::Apart => "what two products' projections need, each by itself",
            Self::Rows | Self::Sums | Self::Side | Self::Results | Self::Groups | Self::Factor | Self::Tiles => "",
        };
        self.orders().map_or_else(|| format!("{any}, in any order"), str::to_string)
    }

    /// For which orders such a bound holds, where not for all.
    pub fn orders(self) -> Option<&'static str> {
        match self {
            Self::Once | Self::Contraction | Self::Parts | Self::Apart => None,
            Self::Rows => Some("where every weight is made once"),
            Self::Sums => Some("where every row comes in once, and sums stay until they are complete"),
            Self::Side => {
                Some("where all rows stay, or all that their weights are made of, or groups of rows follow one another")
            }
            Self::Results => Some(
                "where no weight goes out, and all rows stay, or all that weights are made of, with groups of what is beside them; or where tiles of results follow one another",
            ),
            Self::Groups => Some("where groups of rows follow one another, each until it is complete"),
            Self::Factor => Some(
                "where a factor comes in once, row by row, or no sum is complete before as much came in as the memory holds twice",
            ),
            Self::Tiles => Some(
                "where rows of a factor or of the result, or tiles of sums that need twice what the memory holds, follow one another, each until it is complete",
            ),
        }
    }
}

/// Elements that must be read and written with these tiles, per tensor.
pub(crate) fn compulsory(reuse: &Reuse<'_>) -> Traffic {
    let mut traffic = Traffic::new();
    reuse.region(&reuse.nest.body.all, 0, Lean::Low, &mut traffic);
    // Of iterations that guards steer only the largest was taken.
    for &k in reuse.nest.body.all.iter().filter(|&&k| reuse.nest.accesses[k].loops.iter().any(|l| !l.guards.is_empty()))
    {
        let access = &reuse.nest.accesses[k];
        if !access.store {
            let (read, _) = traffic.of(access.tensor);
            *read = (*read).max(reuse.nest.read_in_any_tiles(reuse.kernel, k));
        }
    }
    traffic
}

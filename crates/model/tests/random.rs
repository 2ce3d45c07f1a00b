//! Random loop nests: counts are those of a walk, whatever the conditions and coordinates.

mod common;

use common::walk;
use einloom_cascade::DType::F32;
use einloom_model::transfers;
use einloom_tile::*;

/// A linear congruential generator (Knuth's MMIX constants): the same programs on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A condition on `own` and perhaps others that is not always false.
    fn predicate(&mut self, own: AxisId, others: &[AxisId]) -> Predicate {
        let mut all = vec![];
        for _ in 0..self.below(3) {
            let mut affine = Affine::from(self.between(-3, 12));
            if self.below(5) > 0 {
                affine = affine + own * self.choose(&[-2, -1, 1, 2]);
            }
            if self.below(4) > 0 {
                affine = affine + self.choose(others) * self.choose(&[-2, -1, 1, 2]);
            }
            all.push(affine);
        }
        Predicate { all }
    }

    /// A coordinate over some of these axes.
    fn coord(&mut self, axes: &[AxisId]) -> Coord {
        let mut affine = Affine::from(self.between(-4, 4));
        for _ in 0..1 + self.below(2) {
            affine = affine + self.choose(axes) * self.choose(&[-1, 1, 1, 1, 2, 3]);
        }
        let coord = Coord::from(affine);
        if self.below(4) == 0 { coord.div_floor(self.between(1, 3)) } else { coord }
    }

    fn program(&mut self) -> Result<Program, Vec<Defect>> {
        let mut p = Builder::new("random");
        let x = p.input("X", &[1 + self.below(20), 1 + self.below(30)], F32);
        p.kernel("random", |k| {
            let g = k.grid("g", self.below(20), 1 + self.below(6));
            let one = k.grid("one", 1 + self.below(4), 1);
            let w = k.whole("w", 1 + self.below(6));
            let s = k.stream_axis("s", self.below(25), 1 + self.below(7));
            let t = k.stream_axis("t", self.below(12), 1);
            // At most two axes with more than one position.
            let load = |random: &mut Self, k: &mut KernelBuilder, axes: &[AxisId]| {
                let at = [random.coord(axes), random.coord(axes)];
                k.load_or("x", x, at, 0.0);
            };
            load(self, k, &[g, one, w]);
            let within = self.predicate(s, &[g, one, w]);
            k.stream(s, within, [], |k, []| {
                load(self, k, &[g, one, s]);
                let within = self.predicate(t, &[g, one, s]);
                k.stream(t, within, [], |k, []| {
                    load(self, k, &[one, s, t, w]);
                    load(self, k, &[g, s, t]);
                    []
                });
                []
            });
        });
        p.finish()
    }
}

#[test]
fn random_nests_are_counted_exactly() {
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    let mut random = Random(1);
    let mut loaded = 0;
    for round in 0..500 {
        let program = random.program().unwrap_or_else(|d| panic!("round {round}: {}", d[0]));
        let walked = walk(&program, &program.kernels[0]);
        let truth = walked.moved.get(&TensorId(0)).map_or(0, |m| m.0);
        let found = &transfers(&program, &machine)[0];
        assert_eq!(found.tensors[0].loaded_bytes, truth, "round {round}\n{}", print(&program));
        let distinct = walked.distinct.get(&TensorId(0)).copied().unwrap_or(0);
        for level in &found.levels {
            assert!(level.bound_bytes <= distinct, "round {round}: {level:?}, {distinct}\n{}", print(&program));
        }
        loaded += usize::from(truth > 0);
    }
    assert!(loaded > 250, "most programs load something: {loaded}");
}

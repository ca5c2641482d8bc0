//! The only source of chance in a run: xoshiro256**, seeded by splitmix64, so that a seed is a run.

#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    /// A generator of its own, so that what one part draws does not shift what another one does.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next())
    }

    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// One of `0..bound`. The bias of the modulo is of no interest here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `per_mille` times of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Mostly near `typical`, sometimes up to twenty times as much: how long things take.
    pub fn latency(&mut self, typical: u64) -> u64 {
        let spread = typical / 2 + self.below(typical + 1);
        if self.chance(20) { spread * self.between(2, 20) } else { spread }
    }

    /// The wait for something that comes once every `mean`.
    pub fn wait(&mut self, mean: u64) -> u64 {
        // The sum of two even draws is exponential enough.
        self.below(mean + 1) + self.below(mean + 1)
    }
}

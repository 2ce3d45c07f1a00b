//! Scalar functions: the names a cascade may use and what they mean on `f64`.
//! Shared by every later stage, so that all of them spell a function the same way.

/// A function of one scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum UnaryOp {
    Neg,
    Not,
    Abs,
    Exp,
    Exp2,
    Log,
    Log2,
    Log1p,
    Sqrt,
    Rsqrt,
    Tanh,
    Sigmoid,
    Erf,
    Sin,
    Cos,
    Floor,
    /// To the nearest integer, ties to even.
    Round,
    /// -1, 0 or 1.
    Sign,
    Relu,
    Silu,
    /// `x/2 * (1 + erf(x/sqrt(2)))`.
    Gelu,
}

/// A function of two scalars. Comparisons and logic give 1 for true and 0 for false on `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    And,
    Or,
}

impl UnaryOp {
    /// Every function that is written `name(x)`, in the order of the language page.
    pub const NAMED: [UnaryOp; 19] = [
        Self::Abs,
        Self::Exp,
        Self::Exp2,
        Self::Log,
        Self::Log2,
        Self::Log1p,
        Self::Sqrt,
        Self::Rsqrt,
        Self::Tanh,
        Self::Sigmoid,
        Self::Erf,
        Self::Sin,
        Self::Cos,
        Self::Floor,
        Self::Round,
        Self::Sign,
        Self::Relu,
        Self::Silu,
        Self::Gelu,
    ];

    /// The spelling in source text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Neg => "-",
            Self::Not => "not",
            Self::Abs => "abs",
            Self::Exp => "exp",
            Self::Exp2 => "exp2",
            Self::Log => "log",
            Self::Log2 => "log2",
            Self::Log1p => "log1p",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::Erf => "erf",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Floor => "floor",
            Self::Round => "round",
            Self::Sign => "sign",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
        }
    }

    /// The value at `x`, in `f64`.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Neg => -x,
            Self::Not => f64::from(x == 0.0),
            Self::Abs => x.abs(),
            Self::Exp => x.exp(),
            Self::Exp2 => x.exp2(),
            Self::Log => x.ln(),
            Self::Log2 => x.log2(),
            Self::Log1p => x.ln_1p(),
            Self::Sqrt => x.sqrt(),
            Self::Rsqrt => 1.0 / x.sqrt(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => sigmoid(x),
            Self::Erf => libm::erf(x),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Floor => x.floor(),
            Self::Round => x.round_ties_even(),
            Self::Sign => {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    x
                }
            }
            // Not `f64::max`, which drops a NaN.
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Silu => x * sigmoid(x),
            Self::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl BinaryOp {
    /// The spelling in source text: an operator, or `min` and `max`.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Pow => "^",
            Self::Min => "min",
            Self::Max => "max",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::And => "and",
            Self::Or => "or",
        }
    }

    /// Whether the result is a truth value.
    pub fn is_predicate(self) -> bool {
        self.is_comparison() || matches!(self, Self::And | Self::Or)
    }

    /// Whether it compares two numbers.
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Lt | Self::Le | Self::Gt | Self::Ge | Self::Eq | Self::Ne)
    }

    /// The value at `(a, b)`, in `f64`. `min` and `max` keep a NaN.
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Pow => a.powf(b),
            Self::Min => {
                if a.is_nan() || a < b {
                    a
                } else {
                    b
                }
            }
            Self::Max => {
                if a.is_nan() || a > b {
                    a
                } else {
                    b
                }
            }
            Self::Lt => f64::from(a < b),
            Self::Le => f64::from(a <= b),
            Self::Gt => f64::from(a > b),
            Self::Ge => f64::from(a >= b),
            Self::Eq => f64::from(a == b),
            Self::Ne => f64::from(a != b),
            Self::And => f64::from(a != 0.0 && b != 0.0),
            Self::Or => f64::from(a != 0.0 || b != 0.0),
        }
    }
}

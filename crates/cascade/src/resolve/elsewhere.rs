//! Names that functions and number types have elsewhere.

/// How what another language calls so is written here.
pub(super) fn function(name: &str) -> Option<&'static str> {
    Some(match name {
        "ln" => "the natural logarithm is `log(x)`",
        "log10" => "write `log(x) / log(10)`",
        "expm1" => "write `exp(x) - 1`",
        "pow" | "power" => "write `x^y`",
        "square" => "write `x^2`",
        "cbrt" => "write `x^(1/3)`",
        "reciprocal" | "rcp" => "write `1 / x`",
        "clamp" | "clip" => "write `min(max(x, low), high)`",
        "softplus" => "write `max(x, 0) + log1p(exp(-abs(x)))`, which does not overflow",
        "logsigmoid" => "write `min(x, 0) - log1p(exp(-abs(x)))`, which does not overflow",
        "swish" => "it is `silu(x)`",
        "fabs" => "it is `abs(x)`",
        "maximum" => "it is `max(x, y)`",
        "minimum" => "it is `min(x, y)`",
        "tan" => "write `sin(x) / cos(x)`",
        "sinh" => "write `(exp(x) - exp(-x)) / 2`",
        "cosh" => "write `(exp(x) + exp(-x)) / 2`",
        "ceil" => "write `-floor(-x)`",
        "if" | "select" | "ifelse" => "write `where(condition, x, y)`",
        "var" | "std" => "a statement of your own is needed: `m = mean(n) X[n]`, then `mean(n) (X[n] - m)^2`",
        _ => return None,
    })
}

/// The number type that another language calls so.
pub(super) fn dtype(name: &str) -> Option<&'static str> {
    Some(match name {
        "float" | "float32" | "single" | "fp32" => "f32",
        "double" | "float64" | "fp64" => "f64",
        "half" | "float16" | "fp16" => "f16",
        "bfloat16" | "bfloat" => "bf16",
        "float8_e4m3" | "float8_e4m3fn" | "fp8" => "e4m3",
        "float8_e5m2" => "e5m2",
        "int" | "int32" | "long" | "int64" => "i32",
        "short" | "int16" => "i16",
        "int8" => "i8",
        "int4" => "i4",
        "uint8" | "byte" => "u8",
        "uint4" => "u4",
        "bool" | "boolean" | "bit" => "b1",
        _ => return None,
    })
}

//! The published results of *FlashAttention on a Napkin* (Abbott and Zardini, arXiv 2412.03317v2) fall out of one
//! analysis of program texts. Names of operators are this test's; the analysis sees boxes and wires.

mod formulas;
mod hierarchy;
mod hopper;
mod programs;

//! Every program compiles with NVRTC, for both targets, where NVRTC is present; it is emitted in any case.

mod programs;

use einloom_cuda::{Target, emit};
use programs::Case;

#[test]
fn every_feature_compiles_for_both_targets() {
    // Fewer sizes than elsewhere: the compiler takes its time.
    let some = programs::worked_examples().into_iter().step_by(5);
    let cases: Vec<Case> = programs::features().into_iter().chain(some).collect();
    let compiler = programs::compiler();
    std::thread::scope(|s| {
        for target in [Target::SM_80, Target::SM_90A] {
            let (cases, compiler) = (&cases, &compiler);
            s.spawn(move || {
                for case in cases {
                    let source = emit(&case.program, &target).unwrap_or_else(|e| panic!("{}: {e}", case.name));
                    if let Some(compiler) = compiler {
                        let arch = target.arch.to_string();
                        let result = compiler.compile(&source.text, &arch, None);
                        result.unwrap_or_else(|e| panic!("{} for {arch}: {e}", case.name));
                    }
                }
            });
        }
    });
}

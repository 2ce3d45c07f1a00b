//! Small programs that each need something of their own: text, sizes, and the plan computes what the text means.

mod support;

use einloom_plan::{Fusion, Options};
use support::{check, read, sized};

/// Plans with the planner's tiles, with tiny ones, and without fusion.
fn computes(text: &str, sizes: &str) {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let tiny = |tile: usize| cascade.indices.iter().map(|i| (i.name.clone(), tile)).collect();
    check(text, &cascade, &bound, &Options::default(), 1);
    check(text, &cascade, &bound, &Options { tiles: tiny(2), ..Options::default() }, 2);
    check(text, &cascade, &bound, &Options { tiles: tiny(3), fuse: Fusion::None, ..Options::default() }, 3);
}

#[test]
fn pointwise() {
    computes("input X[i,j,k]: f32, b[k]: f32\noutput Y: bf16\nY[i,j,k] = relu(X[i,j,k] + b[k]) * 2", "I=3,J=5,K=7");
    computes("input X[i]: f32\noutput Y: f32\nY[i,j] = X[i] - X[j] + i*10 - j", "I=3,J=3");
    computes("output Y: i32\nindex i, j in N\nY[i,j] = where(i <= j, i + j, -1)", "N=5");
    computes("input s[]: f32, X[i]: f32\noutput Y: f32\nY[i] = s[] * X[i]", "I=4");
    computes("input X[i,j,k,l]: f32\noutput Y: f32\nY[l,j,i,k] = X[i,j,k,l] + 1", "I=3,J=2,K=4,L=5");
}

#[test]
fn reductions() {
    computes("input X[i,j]: f32\noutput Y: f32\nY[] = sum(i,j) X[i,j]", "I=5,J=7");
    computes("input X[i,j,k]: f32\noutput Y: f32\nY[j] = max(i,k) X[i,j,k] * k", "I=3,J=4,K=5");
    computes("input X[i,j]: f32\noutput Y: f32\nY[i] = prod(j: j >= i) (1 + X[i,j]/10)", "I=5,J=4");
    computes("input X[i]: f32\noutput N, S: f32\nN[i] = sum(j: j < i) 1\nS[] = sum(i) 3\nindex i, j in L", "L=6");
    computes("input X[i,j]: i8\noutput Y: i32, Z: f32\nY[i] = sum(j) X[i,j]\nZ[i] = min(j) X[i,j]", "I=4,J=5");
    computes("input X[i,j]: b1\noutput Y: i32\nY[i] = sum(j) where(X[i,j], 1, 0)", "I=4,J=5");
    computes("input X[i,j]: f64\noutput Y: f64\nY[i] = sum(j) X[i,j]^2", "I=4,J=5");
}

#[test]
fn nothing_to_reduce() {
    let text = "input X[i,j]: f32\noutput Y, M, A: f32, P: i32\n\
                Y[i] = sum(j) X[i,j]\nM[i] = max(j) X[i,j]\nA[i] = sum(j) X[i,j] * 3 + 1\nP[i] = argmax(j) X[i,j]";
    computes(text, "I=3,J=0");
    computes(text, "I=0,J=4");
    computes("input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k]*B[k,n]", "M=3,N=2,K=0");
}

#[test]
fn normalised_both_ways() {
    let text =
        "input A[m,n]: f32\noutput C: f32\nC[m,n] = A[m,n] / (sum(m) abs(A[m,n]) + 1) / (sum(n) abs(A[m,n]) + 1)";
    computes(text, "M=5,N=4");
}

#[test]
fn chains_of_products() {
    let text = "input A[i,j]: f32, B[j,k]: f32, C[k,l]: f32\noutput D: f32\n\
                T[i,k] = sum(j) A[i,j]*B[j,k]\nD[i,l] = sum(k) T[i,k]*C[k,l]";
    computes(text, "I=5,J=4,K=6,L=3");
    let text = "input A[b,i,j]: f32, B[j,k]: f32\noutput D: f32\nD[b,i,k] = sum(j) A[b,i,j]*B[j,k]";
    computes(text, "B=2,I=5,J=4,K=6");
    let text = "input A[i,j]: f32, B[j,k]: f32, w[j]: f32, u[i]: f32\noutput D: f32\n\
                D[i,k] = sum(j: j <= i + k) A[i,j]*w[j]*B[j,k]/(1+u[i]^2)";
    computes(text, "I=5,J=4,K=6");
    let text = "input A[i,j]: f32, B[k,j]: f32\noutput D: f32\nD[i,k] = sum(j) (A[i,j]-B[k,j])^2";
    computes(text, "I=5,J=4,K=6");
    let text = "input A[i,j,k]: f32, B[j]: f32, C[k]: f32\noutput D: f32\nD[i] = sum(j,k) A[i,j,k]*B[j]*C[k]";
    computes(text, "I=5,J=4,K=6");
}

#[test]
fn convolutions() {
    let text = "input X[b,c,y0,x0]: f32, W[o,c,r,s]: f32\noutput Z: f32\nrank Y = Y0 - R + 1\nrank X = X0 - S + 1\n\
                Z[b,o,y,x] = sum(c,r,s) X[b,c,y+r,x+s]*W[o,c,r,s]";
    computes(text, "B=2,C=3,Y0=6,X0=5,O=4,R=3,S=2");
    let text = "input X[i]: f32, W[r]: f32\noutput Y: f32\nY[i] = sum(r: r <= i) X[i-r]*W[r]";
    computes(text, "I=7,R=3");
    let text = "input X[l]: f32\noutput Y: f32\nrank L = 2*I\nY[i] = max(r) X[2*i + r]";
    computes(text, "I=4,R=2");
}

#[test]
fn gathers() {
    let text = "input E[v,d]: f32, ids[t]: i32\noutput Y: f32\nY[t,d] = E[ids[t],d] * 2";
    computes(text, "V=6,D=5,T=7");
    let text = "input E[v,d]: f32, ids[t]: i32, Q[d]: f32\noutput Y: f32\nY[t] = sum(d) E[ids[t],d] * Q[d]";
    computes(text, "V=6,D=5,T=7");
    let text = "input E[v]: f32, ids[t,k]: i32\noutput Y: f32\nY[t] = sum(k) where(ids[t,k] >= 1, E[ids[t,k] - 1], 0)";
    computes(text, "V=6,K=5,T=7");
    let text = "input X[t,v]: f32, E[v]: f32\noutput Y: f32\nbest[t]: i32 = argmax(v) X[t,v]\nY[t] = E[best[t]]";
    computes(text, "T=5,V=4");
}

#[test]
fn intermediates_read_elsewhere() {
    let text = "input X[i,j]: f32\noutput Y: f32\ns[i] = sum(j) X[i,j]\nY[i,k] = s[i] - s[k]\nindex i, k in N";
    computes(text, "N=5,J=4");
    let text = "input X[n]: f32\noutput Y: f32\nrank N = 2*I\nc[n] = sum(k: k <= n) X[k]\nY[i] = c[2*i+1] - c[2*i]\n\
                index n, k in N";
    computes(text, "I=4");
}

#[test]
fn conditions_that_leave_chunks_out() {
    // Disjunctions, quotients and magnitudes of positions; elements that a chunk shares and such that differ in it.
    let filters = [
        "n <= m or n < 3",
        "n <= m or n < p[b]",
        "not n <= m and n < p[b] * 2",
        "floor(n / 4) == floor(m / 4)",
        "abs(floor(m / 3) - floor(n / 3)) <= 1 and abs(m - 3 * floor(m / 3) - (n - 3 * floor(n / 3))) <= 1",
        "x[b,m] == y[b,n]",
        "n <= m and x[b,m] == y[b,n]",
        "y[b,n] < 3 or y[b,n] > x[b,m] + 2",
        "where(n < 5, y[b,n], m) <= x[b,m]",
        "n <= m and y[b,n] * 0.3 <= x[b,m] * 0.1 + 0.4",
        "y[b,n] == 99",
    ];
    for filter in filters {
        for (monoid, body) in [("sum", "A[b,m,n] * B[b,n]"), ("max", "A[b,m,n]"), ("min", "exp(A[b,m,n] + B[b,n])")] {
            let text = format!(
                "input A[b,m,n]: f32, B[b,n]: f32, x[b,m]: i32, y[b,n]: i32, p[b]: i32\noutput Y: f32\n\
                 Y[b,m] = {monoid}(n: {filter}) {body}"
            );
            computes(&text, "B=2,M=7,N=11");
        }
    }
    let text = "input A[m,n]: f32, V[n,e]: f32, x[m]: i8, y[n]: u8\noutput O: f32\n\
                P[m,n] = exp(A[m,n] - max(n: x[m] == y[n]) A[m,n])\n\
                O[m,e] = sum(n: x[m] == y[n]) P[m,n] / (sum(n: x[m] == y[n]) P[m,n]) * V[n,e]";
    computes(text, "M=9,N=14,E=3");
}

/// What says nothing of what is reduced leaves the reduction, and keeps its loop from being entered.
#[test]
fn conditions_beside_what_is_reduced() {
    let text =
        |last: &str| format!("input A[m,k]: f32, B[n,k]: f32, s[m]: i32\noutput Y: f32\nindex m, n in M\n{last}");
    for last in [
        "Y[m,n] = sum(k: n <= m) A[m,k]*B[n,k]",
        "Y[m,n] = where(n <= m, sum(k) A[m,k]*B[n,k], 1)",
        "Y[m,n] = where(n <= m and m <= n + 2, sum(k) A[m,k]*B[n,k], n)",
        "Y[m,n] = max(k: n <= m and k <= n) (A[m,k] + B[n,k])",
        "Y[m,n] = sum(k: s[m] == s[n] and k > 0) A[m,k]*B[n,k]",
        "Y[m] = sum(k: m >= 2) A[m-2,k]",
        "Y[m] = sum(k: s[m] >= 3) A[s[m], k] * 2",
        "Y[m,n] = 2 - sum(k: m < 3) B[n,k]",
        "Y[m] = max(k: k == 0) s[m]",
        "S[m,n] = sum(k) A[m,k]*B[n,k]\nY[m,n] = where(m <= n, S[m,n], 0) + where(m > n, S[m,n], 0)",
        "S[m,n] = sum(k) A[m,k]*B[n,k]\nR[m] = sum(n: n <= m) S[m,n]\nY[m,n] = where(n < m, S[m,n] - R[m], R[n])",
        "S[m,n] = sum(k) A[m,k]*B[n,k]\nY[m,n] = where(n <= m, S[m,n] + S[n,m], 0)",
        "S[m,n] = sum(k: n <= m) A[m,k]*B[n,k]\nY[m] = sum(n) S[m,n]*s[n]",
    ] {
        computes(&text(last), "M=7,K=5");
    }
    let masked = "input A[m,k]: f32, B[n,k]: f32, C[n,d]: f32\noutput Y: f32\nindex m, n in M\n\
                  Y[m,d] = sum(n) (sum(k: n <= m) A[m,k]*B[n,k]) * C[n,d]";
    computes(masked, "M=9,K=4,D=3");
    // A position that is read may be one only where the condition holds.
    let kept = "input A[r,k]: f32, at[m]: i32\noutput Y: f32\nY[m] = sum(k: at[m] >= 0) A[at[m],k]";
    let cascade = read(kept);
    check(kept, &cascade, &sized(&cascade, "M=6,R=3,K=5"), &Options::default(), 1);
}

#[test]
fn several_outputs() {
    let text = "input X[m,n]: f32\noutput Y, L, S: f32\nS[m,n] = X[m,n]*2\nL[m] = logsumexp(n) S[m,n]\n\
                Y[m,n] = exp(S[m,n] - L[m])";
    computes(text, "M=5,N=7");
    let text = "input X[m,n]: f32\noutput A, B, C: f32\nA[m] = sum(n) X[m,n]\nB[n] = sum(m) X[m,n]\nC[] = sum(m) A[m]";
    computes(text, "M=5,N=7");
    let text = "input X[m]: f32\noutput A, B: f32\nA[m] = X[m] + 1\nB[m] = A[m] * 2";
    computes(text, "M=5");
}

#[test]
fn declared_types_round() {
    let text =
        "input X[m,n]: f32\noutput Y: f32\nS[m,n]: e4m3 = X[m,n]*1.37\nQ[m]: bf16 = sum(n) S[m,n]\nY[m] = Q[m]*3.3";
    computes(text, "M=5,N=7");
    let text = "input X[m,k]: i8, W[k,n]: i8, s[m]: f32\noutput Y: f32\nY[m,n] = sum(k) X[m,k]*W[k,n]*s[m]";
    computes(text, "M=5,N=3,K=6");
    let text = "input X[m,k]: f32, W[k,n]: i8\noutput Y: f32\nY[m,n] = sum(k) X[m,k]*W[k,n]";
    computes(text, "M=5,N=3,K=6");
}

#[test]
fn users_monoids() {
    let text = "input X[m,n]: f32\noutput Y: f32\nmonoid far(a, b) = where(abs(a) >= abs(b), a, b) identity 0\n\
                Y[m] = reduce far(n) X[m,n]";
    computes(text, "M=5,N=7");
    let text = "input X[m,n]: f32\noutput Y: f32\nmonoid lse(a, b) = max(a,b) + log1p(exp(-abs(a-b))) identity -100\n\
                Y[m] = reduce lse(n: n != m) X[m,n]";
    computes(text, "M=5,N=7");
}

#[test]
fn positions_of_extrema() {
    let text =
        "input X[m,n,k]: f32\noutput A, B: i32\nA[m] = argmax(n,k) X[m,n,k]\nB[m] = argmin(n: n > m, k) X[m,n,k]";
    let text = text.replace("argmin(n: n > m, k)", "argmin(n, k: n > m)");
    computes(&text, "M=4,N=5,K=3");
}

#[test]
fn recurrences() {
    let text = "input a[t]: f32, K[t,d]: f32, V[t,e]: f32, Q[t,d]: f32\noutput O: f32\n\
                H[0,d,e] = 0\nH[t+1,d,e] = a[t]*H[t,d,e]/4 + K[t,d]*V[t,e]\nO[t,e] = sum(d) Q[t,d] * H[t+1,d,e]";
    computes(text, "T=6,D=4,E=5");
    let text = "input a[b,t]: f32, h0[b]: f32\noutput H: f32\nH[0,b] = h0[b]\nH[t+1,b] = H[t,b]/2 + a[b,t]";
    computes(text, "T=6,B=4");
    let text = "input a[t]: f32\noutput L: f32\nH[0] = 1\nH[t+1] = H[t]/2 + a[t]\nL[] = H[T]";
    computes(text, "T=6");
    computes(text, "T=0");
    let text = "input a[t,i]: f32\noutput H, L: f32\nH[0,i] = 1\nH[t+1,i] = H[t,i]/2 + a[t,i]\nL[i] = H[T,i]*2 + 1";
    computes(text, "T=5,I=4");
}

#[test]
fn recurrences_that_mix_positions() {
    let text = "input W[i,j]: f32, X[t,i]: f32\noutput H: f32\nindex i, j in N\nH[0,i] = 0\n\
                H[t+1,i] = tanh(sum(j) W[i,j]*H[t,j]/4 + X[t,i])";
    computes(text, "T=4,N=5");
    let text = "input A[i,j]: f32, E[t,i]: f32\noutput best: f32\nindex i, j in N\nV[0,i] = 0\n\
                V[t+1,j] = max(i) (V[t,i] + A[i,j]) + E[t,j]\nbest[] = max(i) V[T,i]";
    computes(text, "T=4,N=5");
    let text = "input X[t,i]: f32\noutput H: f32\nH[0,i] = 1\nu[t,i] = H[t,i] + X[t,i]\n\
                H[t+1,i] = u[t,i] / (1 + sum(i) abs(u[t,i]))";
    computes(text, "T=4,I=5");
    let text = "input A[i,j]: f32, X[t,j]: f32\noutput H, G: f32\nindex i, j in N\nH[0,i,e] = e - i\n\
                index e in E\nH[t+1,i,e] = (sum(j) A[i,j]*H[t,j,e] + H[t,e,i])/4 + X[t,i]\nrank E = N\n\
                G[i] = H[T,i,0]";
    computes(text, "T=3,N=4");
}

/// What a step computes on its way is read outside, elsewhere than where it is computed.
#[test]
fn recurrences_whose_steps_are_read_outside() {
    let head = "input C[i,j]: f32\noutput P: f32\nrank T = 5\nindex s in T\nu[0,i] = 1\n";
    let linear = "k[t,j] = sum(i) C[i,j]*u[t,i]\nu[t+1,i] = (sum(j) C[i,j]*k[t,j])/8\n";
    let both = "k[t,j] = 1/(2 + sum(i) abs(C[i,j])*u[t,i])\nu[t+1,i] = 1/(2 + sum(j) abs(C[i,j])*k[t,j])\n";
    for step in [linear, both] {
        for value in [
            "P[j] = k[T-1,j]",
            "P[s,j] = k[s,j]",
            "P[s,j] = k[T-1-s,j] + u[T,0]",
            "P[t,j] = k[t,j] + k[0,j]",
            "P[i,j] = u[T,i]*C[i,j]*k[T-1,j]",
            "P[j] = k[T-1,j] + sum(t) k[t,j]",
        ] {
            for sizes in ["I=1,J=1", "I=3,J=4", "I=130,J=3"] {
                computes(&format!("{head}{step}{value}"), sizes);
            }
        }
    }
}

/// A slice is read where its own index tells, by way of what is gathered.
/// Its product reads the slice before at other indices, and has its scale whoever reads it, before it in the order or after.
#[test]
fn a_recurrence_that_reads_itself_elsewhere() {
    let text = "input  Q[e,p]: f32, K[e,m]: f32, V[f,m]: f32
                output AV: f32
                rank   M = M1 * M0
                RM[0,p] = -inf
                RD[0,p] = 0
                RNV[f,0,p] = 0
                BV[f,m1,m0] = V[f,m1*M0 + m0]
                BQK[m1,m0,p] = sum(e) Q[e,p] * RNV[e,m1,m0] / sqrt(E)
                LM[m1,p] = max(m0) BQK[m1,m0,p]
                RM[m1+1,p] = max(RM[m1,p], LM[m1,p])
                SLN[m1,m0,p] = exp(BQK[m1,m0,p] - RM[m1+1,p])
                SLD[m1,p] = sum(m0) SLN[m1,m0,p]
                SLNV[f,m1,p] = sum(m0) SLN[m1,m0,p] * BV[f,m1,m0]
                PRM[m1,p] = exp(RM[m1,p] - RM[m1+1,p])
                SPD[m1,p] = RD[m1,p] * PRM[m1,p]
                RD[m1+1,p] = SLD[m1,p] + SPD[m1,p]
                SPNV[f,m1,p] = RNV[f,m1,p] * PRM[m1,p]
                RNV[f,m1+1,p] = SLNV[f,m1,p] + SPNV[f,m1,p]
                AV[f,p] = RNV[f,M1,p] / RD[M1,p]";
    computes(text, "E=4,F=4,P=3,M1=3,M0=3");
    computes(text, "E=2,F=2,P=1,M1=5,M0=1");
    computes(text, "E=5,F=6,P=4,M1=2,M0=4");
}

#[test]
fn recurrences_that_gather() {
    let text = "input x[t,c]: f32, at[c]: i32\noutput B, D: f32\nD[0,c] = c\n\
                D[t+1,c] = D[t,at[c]]/2 + x[t,c]\nB[c] = D[T,c]";
    computes(text, "T=4,C=5");
    let text = "input x[t,c]: f32, at[t,c]: i32\noutput B: f32\nD[0,c] = c\n\
                D[t+1,c] = max(D[t,at[t,c]], x[t,c])\nB[c] = D[T,c]";
    computes(text, "T=4,C=5");
    let text = "input x[t,c,e]: f32, at[c]: i32, by[c,e]: i32\noutput B: f32\nD[0,c,e] = c - e\n\
                D[t+1,c,e] = D[t,at[c],by[c,e]]/4 + D[t,at[at[c]],e] + x[t,c,e]\nB[c,e] = D[T,c,e]";
    computes(text, "T=3,C=4,E=3");
    let text = "input x[t,c]: f32\noutput B: f32\nindex c, k in C\n\
                at[c]: i32 = where(c > 0, c - 1, C - 1)\nD[0,c] = c\n\
                D[t+1,c] = max(D[t,at[c]], D[t,c]) + min(k) D[t,k] + x[t,c]\nB[c] = D[T,c]";
    computes(text, "T=4,C=5");
    // What is gathered by is a state itself, and read elsewhere too.
    let text = "input x[t,c]: f32, p[c]: i32\noutput B: f32\nA[0,c]: i32 = p[c]\nA[t+1,c]: i32 = A[t,p[c]]\n\
                D[0,c] = c\nD[t+1,c] = D[t,A[t,p[c]]] + x[t,A[t,c]]\nB[c] = D[T,c]";
    computes(text, "T=4,C=4");
}

/// A slice is read at other positions of its own indices: shifted, turned round, divided, one of them, two at once.
#[test]
fn recurrences_that_read_neighbours() {
    for (dtype, sizes) in
        [("f32", "T=5,I=7"), ("f32", "T=3,I=1"), ("f64", "T=4,I=33"), ("bf16", "T=3,I=5"), ("f32", "T=2,I=0")]
    {
        let text = format!(
            "input X[t,i]: {dtype}\noutput Y: {dtype}\nH[0,i]: {dtype} = i\n\
             H[t+1,i]: {dtype} = where(i >= 1, H[t,i-1], 0)/4 + H[t,i]/2 + where(i + 1 < I, H[t,i+1], 0)/4 + X[t,i]\n\
             Y[i] = H[T,i]"
        );
        computes(&text, sizes);
    }
    let text = "input X[t,i]: i32\noutput Y: i32\nH[0,i]: i32 = i\n\
                H[t+1,i]: i32 = max(where(i >= 2, H[t,i-2], -5), H[t,I-1-i]) + X[t,i]\nY[t,i] = H[t+1,i]";
    computes(text, "T=4,I=6");
    let text = "input X[t,i]: f32\noutput Y: f32\nH[0,i] = i\n\
                H[t+1,i] = H[t,i/2]/2 + H[t,0]/4 + H[t,I-1]/8 + X[t,i]\nY[i] = H[T,i]";
    computes(text, "T=4,I=9");
    // What fills in for positions that there are none of is infinite, and nobody chooses it.
    let text = "input X[t,i]: f32\noutput Y, Z: f32\nindex i, k in I\nH[0,i] = -inf\n\
                H[t+1,i] = max(where(i >= 1, H[t,i-1] - 1, X[t,i]), X[t,i]/2)\nY[i] = H[T,i]\n\
                Z[t,k] = sum(i: i <= k) where(i >= 1, H[t+1,i-1], 0)";
    computes(text, "T=3,I=5");
    let text = "input X[i,j]: f32\noutput Y: f32\nrank T = 3\nH[0,i,j] = X[i,j]\n\
                H[t+1,i,j] = H[t,i,j]/2 + where(i >= 1, H[t,i-1,j], 0)/8 + where(j + 1 < J, H[t,i,j+1], 0)/8 + \
                where(i >= 1 and j >= 1, H[t,i-1,j-1], 1)/4\nY[i,j] = H[T,i,j]";
    computes(text, "I=4,J=5");
    computes(text, "I=1,J=6");
    // Sides that change places are no picks of one after the other.
    let text = "input X[i,j]: f32\noutput Y: f32\nindex i, j in N\nrank T = 3\nH[0,i,j] = X[i,j]\n\
                H[t+1,i,j] = H[t,j,i]/2 + where(i >= 1, H[t,j,i-1], 0)/4\nY[i,j] = H[T,i,j]";
    computes(text, "N=4");
    // Two states, and the next slice of one of them.
    let text = "input X[t,i]: f32\noutput Y: f32\nP[0,i] = 0\nD[0,i] = i\nP[t+1,i] = D[t,i]\n\
                D[t+1,i] = min(D[t,i] + 1, where(i >= 1, min(P[t,i-1] + X[t,i], P[t+1,i-1]), t))\nY[i] = D[T,i]";
    computes(text, "T=5,I=6");
}

/// A user's own reduction that leaves one position is a pick as well, and one that leaves several is none.
#[test]
fn reductions_that_leave_one_position() {
    for filter in
        ["k == i", "k == i + 2", "k == 3", "k == ids[i]", "k == ids[i] - i", "k == floor(i / 2)", "2*k == i", "k >= i"]
    {
        for monoid in ["max", "min"] {
            let text = format!(
                "input X[k,j]: f32, ids[i]: i32\noutput Y: f32\nindex i, k in N\nU[k,j] = X[k,j]*2 + 1\n\
                 Y[i,j] = {monoid}(k: {filter}) (U[k,j] - i)"
            );
            computes(&text, "N=6,J=3");
        }
    }
    let text = "input X[k]: f32, w[i]: f32\noutput Y: f32\nindex i, k in N\nY[i] = max(k: k == w[i]) X[k]";
    computes(text, "N=5");
}

#[test]
fn recurrences_that_look_back() {
    let text = "output F: i32\nF[0] = 1\nF[t+1] = F[t] + where(t >= 1, F[t-1], 0)";
    computes(text, "T=9");
    let text = "input X[t,i]: f32\noutput Y: f32\nH[0,i] = 0\nu[t,i] = H[t,i] + X[t,i]\n\
                s[t] = sum(i) u[t,i]\nH[t+1,i] = u[t,i]/2 + where(t >= 2, s[t-2]/8, 1)\nY[i] = H[T,i]";
    computes(text, "T=6,I=5");
}

#[test]
fn long_chains() {
    let mut text = "input X[m,d]: f32, W[d,e]: f32\noutput Y: f32\nindex d, e in N\nA0[m,d] = X[m,d]\n".to_string();
    for k in 0..12 {
        text += &format!("B{k}[m,e] = sum(d) A{k}[m,d]*W[d,e]\nA{}[m,d] = A{k}[m,d] + tanh(B{k}[m,d])/8\n", k + 1);
    }
    computes(&(text + "Y[m,d] = A12[m,d]"), "M=3,N=4");
    let mut text = "input X[m]: f32\noutput Y: f32\nA0[m] = X[m]\n".to_string();
    for k in 0..300 {
        text += &format!("A{}[m] = A{k}[m]*0.75 + A{k}[m]^2/64\n", k + 1);
    }
    computes(&(text + "Y[m] = A300[m]"), "M=5");
}

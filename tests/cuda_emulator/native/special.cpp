// Functions that CUDA has and the host's C library has not, in double.

#include <cmath>
#include <limits>

namespace {

// Where erfc itself has few digits left, by its asymptotic series.
double log_of_erfc(double y) {
    if (y < 26) return std::log(std::erfc(y));
    const double h = 0.5 / (y * y);
    return -y * y - std::log(1.7724538509055160 * y) + std::log1p(-h * (1 - 3 * h * (1 - 5 * h * (1 - 7 * h * (1 - 9 * h)))));
}

// The tail's own inverse, x = erfc(y), by Newton's method on the logarithm, which is nearly a parabola.
double inverse_of_erfc_tail(double x) {
    double y = std::sqrt(-std::log(x));
    for (int i = 0; i < 60; i++) {
        const double log_tail = log_of_erfc(y);
        const double slope = -1.1283791670955126 * std::exp(-y * y - log_tail);
        const double step = (log_tail - std::log(x)) / slope;
        y -= step;
        if (std::abs(step) <= 1e-16 * std::abs(y)) break;
    }
    return y;
}

double inverse_of_erf_near_zero(double x) {
    double y = x * 0.8862269254527580;
    for (int i = 0; i < 60; i++) {
        const double step = (std::erf(y) - x) / (1.1283791670955126 * std::exp(-y * y));
        y -= step;
        if (std::abs(step) <= 1e-17 + 1e-16 * std::abs(y)) break;
    }
    return y;
}

}  // namespace

extern "C" {

double emulator_erfinv(double x) {
    if (std::isnan(x) || std::abs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
    if (std::abs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
    if (std::abs(x) < 0.5) return inverse_of_erf_near_zero(x);
    return std::copysign(inverse_of_erfc_tail(1 - std::abs(x)), x);
}

double emulator_erfcinv(double x) {
    if (std::isnan(x) || x < 0 || x > 2) return std::numeric_limits<double>::quiet_NaN();
    if (x == 0) return std::numeric_limits<double>::infinity();
    if (x == 2) return -std::numeric_limits<double>::infinity();
    if (x > 1.5) return -inverse_of_erfc_tail(2 - x);
    return x < 0.5 ? inverse_of_erfc_tail(x) : inverse_of_erf_near_zero(1 - x);
}

double emulator_normcdfinv(double x) { return -1.4142135623730951 * emulator_erfcinv(2 * x); }

// The root of 2 in two parts: far out, the rounding of x / √2 counts x² times.
double emulator_normcdf(double x) {
    const double root = 0.70710678118654757, rest = -4.8336466567264567e-17;
    const double y = -x * root, lost = std::fma(-x, root, -y) - x * rest;
    const double value = std::erfc(y);
    return 0.5 * (std::isfinite(y) ? value - 1.1283791670955126 * std::exp(-y * y) * lost : value);
}

double emulator_bessel_i(int order, double x) {
    const double size = std::abs(x);
    double value;
    if (size > 800)  // from 714 on it is too large for a double; the library gives up far beyond
        value = std::numeric_limits<double>::infinity();
    else if (size < 1e-8)  // where the library loses digits
        value = order == 0 ? 1 : size / 2;
    else
        value = std::cyl_bessel_i(double(order), size);
    return order % 2 == 1 && x < 0 ? -value : value;
}

// The argument is brought to a quarter of a turn exactly, before pi rounds it.
double emulator_sinpi(double x) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    const double turn = std::remainder(x, 2.0), half = std::abs(turn);  // -1 to 1
    const double value = half > 0.75 ? std::sin(M_PI * (1 - half)) : half > 0.25 ? std::cos(M_PI * (half - 0.5)) : std::sin(M_PI * half);
    return std::copysign(value, turn);
}

double emulator_cospi(double x) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    const double half = std::abs(std::remainder(x, 2.0));
    if (half <= 0.25) return std::cos(M_PI * half);
    return half < 0.75 ? std::sin(M_PI * (0.5 - half)) : -std::cos(M_PI * (1 - half));
}
}

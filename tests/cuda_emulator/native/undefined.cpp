// What g++'s checks for undefined behaviour call. Each knows the line of the kernel's text.

#include "machine.hpp"

#include <cstdio>

using namespace emulator;

namespace {

struct Location {
    const char* file;
    std::uint32_t line, column;
};

struct Type {
    std::uint16_t kind, information;
    char name[1];
};

struct Mismatch {
    Location location;
    const Type* type;
    unsigned char log_alignment, check;
};

struct Operation {
    Location location;
    const Type* type;
};

struct Bounds {
    Location location;
    const Type* array;
    const Type* index;
};

Site site_of(const Location& location) { return {location.file, int(location.line)}; }

// Values of up to 64 bits come as they are, wider ones behind a pointer; kernels have no wider ones.
long long number(std::uintptr_t value, const Type* type) {
    const unsigned bits = 1u << (type->information >> 1);
    const bool is_signed = type->information & 1;
    if (bits >= 64) return static_cast<long long>(value);
    const std::uint64_t kept = value & ((std::uint64_t(1) << bits) - 1);
    const bool negative = is_signed && (kept >> (bits - 1) & 1);
    return static_cast<long long>(negative ? kept | ~((std::uint64_t(1) << bits) - 1) : kept);
}

[[noreturn]] void overflow(const Operation* data, std::uintptr_t left, const char* sign, std::uintptr_t right) {
    fault("overflow", nullptr, site_of(data->location), "%lld %s %lld does not fit %s", number(left, data->type), sign,
          number(right, data->type), data->type->name);
}

}  // namespace

extern "C" {

void __ubsan_handle_type_mismatch_v1(Mismatch* data, std::uintptr_t pointer) {
    const std::uintptr_t alignment = std::uintptr_t(1) << data->log_alignment;
    if (pointer == 0) fault("out of bounds", nullptr, site_of(data->location), "uses a null pointer to %s", data->type->name);
    fault("misaligned", nullptr, site_of(data->location), "uses 0x%llx as %s, which wants a multiple of %llu",
          static_cast<unsigned long long>(pointer), data->type->name, static_cast<unsigned long long>(alignment));
}

void __ubsan_handle_add_overflow(Operation* data, std::uintptr_t a, std::uintptr_t b) { overflow(data, a, "+", b); }
void __ubsan_handle_sub_overflow(Operation* data, std::uintptr_t a, std::uintptr_t b) { overflow(data, a, "-", b); }
void __ubsan_handle_mul_overflow(Operation* data, std::uintptr_t a, std::uintptr_t b) { overflow(data, a, "*", b); }
void __ubsan_handle_negate_overflow(Operation* data, std::uintptr_t a) { overflow(data, 0, "-", a); }

void __ubsan_handle_divrem_overflow(Operation* data, std::uintptr_t a, std::uintptr_t b) {
    overflow(data, a, "divided by", b);
}

void __ubsan_handle_shift_out_of_bounds(Bounds* data, std::uintptr_t left, std::uintptr_t count) {
    fault("overflow", nullptr, site_of(data->location), "shifts %lld of %s by %lld bits", number(left, data->array),
          data->array->name, number(count, data->index));
}

void __ubsan_handle_out_of_bounds(Bounds* data, std::uintptr_t index) {
    fault("out of bounds", nullptr, site_of(data->location), "index %lld of an array of type %s",
          number(index, data->index), data->array->name);
}
}

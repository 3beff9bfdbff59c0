// Every load and store of a kernel, before it happens: g++'s -fsanitize=thread puts these calls into the code. They
// find accesses outside of buffers, of freed or unwritten bytes, misaligned ones and races, and count the rest.

#include "memory.hpp"

#include <algorithm>

namespace emulator {

unsigned block_number = 0;

namespace {

std::uint32_t launch_number = 0;
std::uint32_t epoch = 0, launch_epoch = 1, block_epoch = 1;
std::vector<std::uint32_t> block_starts;  // the first epoch of each block of this launch
std::vector<bool> fenced;                 // blocks that ran __threadfence
std::uint64_t static_touched = 0;
std::uint64_t steps = 0;  // of the block

const char* verb(Kind kind) {
    return kind == Kind::write ? "writes" : kind == Kind::atomic ? "updates" : "reads";
}

[[noreturn]] void report_outside(std::uintptr_t address, std::uint64_t size, Kind kind, const void* place) {
    const Region* near = region_near(address, 1 << 20);
    const auto bytes = static_cast<unsigned long long>(size);
    if (near == nullptr)
        fault("out of bounds", place, {nullptr, 0}, "%s %llu bytes at 0x%llx, which is in no buffer", verb(kind), bytes,
              static_cast<unsigned long long>(address));
    const long long offset = static_cast<long long>(address - near->begin);
    fault(near->live ? "out of bounds" : "freed", place, {nullptr, 0},
          "%s %llu bytes at byte %lld of %s`%s`, which has %llu bytes", verb(kind), bytes, offset,
          near->live ? "" : "the freed ", near->name.c_str(), static_cast<unsigned long long>(near->end - near->begin));
}

[[noreturn]] void report_at(const char* fault_kind, const Region& region, std::uint64_t offset, std::uint64_t size,
                            Kind kind, const void* place, const char* words) {
    fault(fault_kind, place, {nullptr, 0}, "%s %llu bytes at byte %llu of `%s`%s", verb(kind),
          static_cast<unsigned long long>(size), static_cast<unsigned long long>(offset), region.name.c_str(), words);
}

[[noreturn]] void report_race(const Region& region, std::uint64_t offset, std::uint64_t size, Kind kind,
                              const void* place, const char* before, int other) {
    char words[200];
    if (other >= 0) std::snprintf(words, sizeof words, ", which thread %d %s with no barrier between", other, before);
    else std::snprintf(words, sizeof words, ", which another block %s in the same launch", before);
    report_at("race", region, offset, size, kind, place, words);
}

// The block that an epoch of this launch belongs to, and this one, both ran __threadfence: taken as an order.
bool fences_order(std::uint32_t then) {
    const auto after = std::upper_bound(block_starts.begin(), block_starts.end(), then);
    return fenced[std::size_t(after - block_starts.begin()) - 1] && fenced.back();
}

bool of_another_block(std::uint32_t then) { return then >= launch_epoch && then < block_epoch; }

// A __syncwarp since then, of which both threads know.
bool in_order(unsigned warp, unsigned lane, std::uint32_t time) {
    return warp == current->warp && current->heard[lane] > time;
}

// A lane whose read is not in order with what the current thread does now, or -1.
int unordered_reader(const Cell& cell) {
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(cell.readers >> lane & 1) || in_order(cell.reader_warp, lane, cell.read_time)) continue;
        if (cell.reader_warp != current->warp || lane != current->lane) return int(cell.reader_warp * WARP + lane);
    }
    return -1;
}

struct Access {
    Region& region;
    std::uint64_t offset, size;
    Kind kind;
    const void* place;
};

void check_against_writes(const Cell& cell, const Access& access) {
    if (access.kind == Kind::atomic && cell.atomic) return;
    if (cell.write_epoch == epoch) {
        if (cell.writer == current->number || in_order(cell.writer / WARP, cell.writer % WARP, cell.write_time)) return;
        report_race(access.region, access.offset, access.size, access.kind, access.place, "wrote", cell.writer);
    }
    if (!access.region.shared && of_another_block(cell.write_epoch) && !fences_order(cell.write_epoch))
        report_race(access.region, access.offset, access.size, access.kind, access.place, "wrote", -1);
}

void check_against_reads(const Cell& cell, const Access& access) {
    if (cell.read_epoch == epoch) {
        // Of several warps only the first is kept; one of them is not this one.
        const int reader = cell.several_warps && cell.reader_warp == current->warp ? -2 : unordered_reader(cell);
        if (reader == -2)
            report_at("race", access.region, access.offset, access.size, access.kind, access.place,
                      ", which a thread of another warp read with no barrier between");
        if (reader >= 0)
            report_race(access.region, access.offset, access.size, access.kind, access.place, "read", reader);
    }
    if (access.region.shared || cell.read_epoch < launch_epoch) return;
    const bool other = cell.several_blocks || of_another_block(cell.read_epoch);
    if (other && !fenced.back())
        report_race(access.region, access.offset, access.size, access.kind, access.place, "read", -1);
}

void record_read(Cell& cell) {
    if (cell.read_epoch < launch_epoch) cell.several_blocks = false;
    else if (of_another_block(cell.read_epoch)) cell.several_blocks = true;
    if (cell.read_epoch != epoch) {
        cell.read_epoch = epoch;
        cell.reader_warp = std::uint16_t(current->warp);
        cell.several_warps = false;
        cell.readers = 0;
    }
    if (cell.reader_warp != current->warp) {
        cell.several_warps = true;
        return;
    }
    for (unsigned lane = 0; cell.readers != 0 && lane < WARP; lane++)
        if (in_order(cell.reader_warp, lane, cell.read_time)) cell.readers &= ~(1u << lane);
    cell.readers |= 1u << current->lane;
    cell.read_time = block.time[current->warp];
}

void check_cells(const Access& access) {
    Region& region = access.region;
    while (region.grain > 1 && (access.offset % region.grain != 0 || access.size % region.grain != 0))
        refine(region, region.grain / 2);
    if (region.cells.empty()) region.cells.resize((region.end - region.begin) / region.grain + 1);
    Cell* cell = &region.cells[access.offset / region.grain];
    const bool writes = access.kind == Kind::write || access.kind == Kind::atomic;
    for (std::uint64_t left = access.size / region.grain; left > 0; left--, cell++) {
        check_against_writes(*cell, access);
        if (!writes) {
            record_read(*cell);
            continue;
        }
        check_against_reads(*cell, access);
        cell->write_epoch = epoch;
        cell->writer = std::uint16_t(current->number);
        cell->write_time = block.time[current->warp];
        cell->atomic = access.kind == Kind::atomic;
    }
}

// How many 16-byte instructions make this access: larger structures take several.
std::uint64_t wide_parts(const Access& access) {
    return access.size % 16 == 0 && (access.region.begin + access.offset) % 16 == 0 ? access.size / 16 : 0;
}

void mark_reads(const Access& access) {
    unsigned char* byte = &access.region.bytes[access.offset];
    Traffic& traffic = access.region.traffic;
    const unsigned char mark = access.kind == Kind::read_only ? READ | READ_ONLY : READ;
    for (std::uint64_t i = 0; i < access.size; i++, byte++) {
        if (!(*byte & DEFINED))
            report_at("unwritten", access.region, access.offset + i, 1, access.kind, access.place,
                      ", which nothing has written");
        if (access.kind == Kind::read_only && (*byte & WRITTEN))
            report_at("read-only", access.region, access.offset + i, 1, access.kind, access.place,
                      " by __ldg, which the same launch writes");
        traffic.unique_read += !(*byte & READ);
        *byte |= mark;
    }
    traffic.reads++;
    traffic.bytes_read += access.size;
    traffic.wide_reads += wide_parts(access);
}

void mark_writes(const Access& access) {
    unsigned char* byte = &access.region.bytes[access.offset];
    Traffic& traffic = access.region.traffic;
    for (std::uint64_t i = 0; i < access.size; i++, byte++) {
        if (*byte & READ_ONLY)
            report_at("read-only", access.region, access.offset + i, 1, access.kind, access.place,
                      ", which the same launch reads by __ldg");
        traffic.unique_written += !(*byte & WRITTEN);
        *byte |= WRITTEN | DEFINED;
    }
    traffic.writes++;
    traffic.bytes_written += access.size;
    traffic.wide_writes += wide_parts(access);
    traffic.atomics += access.kind == Kind::atomic;
}

void touch_shared(Region& region, const void* place) {
    const bool first_of_launch = region.seen == 0;
    region.seen = block_number;
    std::fill(region.bytes.begin(), region.bytes.end(), 0);
    std::fill(reinterpret_cast<unsigned char*>(region.begin), reinterpret_cast<unsigned char*>(region.end),
              static_cast<unsigned char>(POISON));
    if (!first_of_launch || region.name == "dynamic shared memory") return;
    static_touched += region.end - region.begin;
    if (static_touched > launch->static_limit)
        fault("shared memory", place, {nullptr, 0},
              "static shared memory of %llu bytes or more, and the compiler allows %llu: use dynamic shared memory",
              static_cast<unsigned long long>(static_touched), static_cast<unsigned long long>(launch->static_limit));
    if (static_touched + launch->dynamic_shared > launch->shared_limit)
        fault("shared memory", place, {nullptr, 0},
              "%llu bytes of static and %llu bytes of dynamic shared memory, and a block has %llu",
              static_cast<unsigned long long>(static_touched), static_cast<unsigned long long>(launch->dynamic_shared),
              static_cast<unsigned long long>(launch->shared_limit));
}

void touch_buffer(Region& region) {
    region.seen = launch_number;
    region.traffic = Traffic{};
    for (unsigned char& byte : region.bytes) byte &= DEFINED;
}

void check(const void* pointer, std::uint64_t size, Kind kind, bool aligned, const void* place) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (current == nullptr || on_a_stack(address)) return;
    if (++steps > launch->most_steps)
        fault("endless", place, {nullptr, 0}, "the block has made %llu loads and stores: a loop without end?",
              static_cast<unsigned long long>(steps));
    Region* region = region_at(address);
    if (region == nullptr) {
        const bool reads = kind == Kind::read || kind == Kind::read_only;
        if (reads && in_a_module(address) && in_a_module(address + size - 1)) return;  // a constant
        report_outside(address, size, kind, place);
    }
    if (!region->live || address + size > region->end) report_outside(address, size, kind, place);
    const Access access{*region, address - region->begin, size, kind, place};
    if (aligned && address % size != 0)
        report_at("misaligned", *region, access.offset, size, kind, place, ", which is not a multiple of the size");
    if (region->shared && region->seen != block_number) touch_shared(*region, place);
    if (!region->shared && region->seen != launch_number) touch_buffer(*region);
    check_cells(access);
    if (launch->watch_warps) note_touch(*region, address, size, kind >= Kind::write, place);
    if (kind == Kind::read || kind == Kind::read_only) mark_reads(access);
    else mark_writes(access);
}

}  // namespace

// Smaller cells with what the larger ones said: until now nobody touched less than a whole one.
void refine(Region& region, unsigned grain) {
    const unsigned parts = region.grain / grain;
    std::vector<Cell> finer;
    finer.reserve(region.cells.size() * parts);
    for (const Cell& cell : region.cells) finer.insert(finer.end(), parts, cell);
    region.cells.swap(finer);
    region.grain = grain;
}

void begin_launch() {
    launch_number++;
    launch_epoch = epoch + 1;
    block_starts.clear();
    fenced.clear();
    static_touched = 0;
    set_shared_memory();
    forget_touches();
}

void begin_block() {
    block_number++;
    block_epoch = ++epoch;
    block_starts.push_back(epoch);
    fenced.push_back(false);
    steps = 0;
}

void end_block() {
    if (launch->watch_warps) count_touches();
}

void pass_block_barrier() { epoch++; }

void fence() { fenced.back() = true; }

}  // namespace emulator

using namespace emulator;

#define HERE __builtin_return_address(0)

extern "C" {

#define HOOKS(size)                                                                              \
    void __tsan_read##size(void* p) { check(p, size, Kind::read, true, HERE); }                  \
    void __tsan_write##size(void* p) { check(p, size, Kind::write, true, HERE); }                \
    void __tsan_unaligned_read##size(void* p) { check(p, size, Kind::read, false, HERE); }       \
    void __tsan_unaligned_write##size(void* p) { check(p, size, Kind::write, false, HERE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void* p, unsigned long size) {
    if (size != 0) check(p, size, Kind::read, false, HERE);
}
void __tsan_write_range(void* p, unsigned long size) {
    if (size != 0) check(p, size, Kind::write, false, HERE);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// What `__ldg` and the atomics of device.hpp say of the access that they are about to make, uninstrumented.
void emulator_read_only(const void* p, int size) { check(p, std::uint64_t(size), Kind::read_only, true, HERE); }
void emulator_atomic(void* p, int size) { check(p, std::uint64_t(size), Kind::atomic, true, HERE); }

void __threadfence() { fence(); }
void __threadfence_system() { fence(); }
void __threadfence_block() {}

std::uint32_t emulator_launch_number() { return launch_number; }
}

// The device's memory: buffers between pages that nobody may touch, and a block's shared memory.

#include "memory.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {

namespace {

constexpr std::uint64_t PAGE = 4096;
constexpr std::uint64_t ALIGNMENT = 256;       // what the driver promises
constexpr std::size_t MOST_FREED = 4096;       // freed buffers whose addresses stay known, and unused
constexpr std::uint64_t MOST_DYNAMIC = 256 << 10;

alignas(256) unsigned char dynamic_shared[MOST_DYNAMIC];

struct Mapping {
    void* start;
    std::uint64_t size;
};

std::map<std::uintptr_t, std::unique_ptr<Region>> buffers;
std::map<std::uintptr_t, Mapping> mappings;
std::deque<std::uintptr_t> freed;
std::vector<std::unique_ptr<Region>> shared_memory;
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> modules;
constexpr std::size_t KEPT = 64;
Region* found_before[KEPT];  // by some bits of the address, so that the next look-up is short

std::uint64_t rounded_up(std::uint64_t size, std::uint64_t step) { return (size + step - 1) / step * step; }

void forget_found() { std::fill(found_before, found_before + KEPT, nullptr); }

void forget_oldest() {
    const std::uintptr_t address = freed.front();
    freed.pop_front();
    munmap(mappings[address].start, mappings[address].size);
    mappings.erase(address);
    buffers.erase(address);
    forget_found();
}

int add_module(dl_phdr_info* object, std::size_t, void* within) {
    std::uintptr_t first = ~std::uintptr_t(0), last = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD) continue;
        const std::uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (start < first) first = start;
        if (start + object->dlpi_phdr[i].p_memsz > last) last = start + object->dlpi_phdr[i].p_memsz;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(within);
    if (address < first || address >= last) return 0;
    modules.emplace_back(first, last);
    return 1;
}

bool holds(const Region* region, std::uintptr_t address) {
    return region != nullptr && address >= region->begin && address < region->end;
}

}  // namespace

Region* region_at(std::uintptr_t address) {
    Region*& kept = found_before[address >> 8 & (KEPT - 1)];
    if (holds(kept, address)) return kept;
    for (auto& region : shared_memory)
        if (holds(region.get(), address)) return kept = region.get();
    auto after = buffers.upper_bound(address);
    if (after == buffers.begin()) return nullptr;
    Region* region = std::prev(after)->second.get();
    return holds(region, address) ? kept = region : nullptr;
}

const Region* region_near(std::uintptr_t address, std::uint64_t distance) {
    for (const auto& region : shared_memory)
        if (address + distance >= region->begin && address < region->end + distance) return region.get();
    auto next = buffers.upper_bound(address);
    const Region* before = next == buffers.begin() ? nullptr : std::prev(next)->second.get();
    const Region* after = next == buffers.end() ? nullptr : next->second.get();
    if (before != nullptr && address >= before->end + distance) before = nullptr;
    if (after != nullptr && address + distance < after->begin) after = nullptr;
    if (before == nullptr || after == nullptr) return before != nullptr ? before : after;
    return address < before->end || address - before->end < after->begin - address ? before : after;
}

bool in_a_module(std::uintptr_t address) {
    for (auto [first, last] : modules)
        if (address >= first && address < last) return true;
    return false;
}

void set_shared_memory() {
    shared_memory.clear();
    forget_found();
    const auto base = reinterpret_cast<std::uintptr_t>(launch->static_shared);
    for (std::uint64_t i = 0; i < launch->variable_count; i++) {
        const SharedVariable& variable = launch->variables[i];
        shared_memory.push_back(
            std::make_unique<Region>(base + variable.offset, variable.size, variable.name, true));
    }
    if (launch->dynamic_shared != 0)
        shared_memory.push_back(std::make_unique<Region>(reinterpret_cast<std::uintptr_t>(dynamic_shared),
                                                         launch->dynamic_shared, "dynamic shared memory", true));
}

}  // namespace emulator

using namespace emulator;

extern "C" void* emulator_dynamic_shared() { return dynamic_shared; }

// A new buffer, poisoned. Its end lies as close to the page behind it as the alignment allows.
extern "C" void* emulator_allocate(std::uint64_t size, const char* name) {
    const std::uint64_t room = rounded_up(size, PAGE), whole = room + 2 * PAGE;
    void* start = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    auto* inside = static_cast<unsigned char*>(start) + PAGE;
    if (room != 0 && mprotect(inside, room, PROT_READ | PROT_WRITE) != 0) return nullptr;
    auto* data = inside + room - rounded_up(size, ALIGNMENT);
    std::memset(data, POISON, size);
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    mappings[address] = {start, whole};
    buffers[address] = std::make_unique<Region>(address, size, name, false);
    return data;
}

// The buffer's pages go, its address stays known: who uses it later is told so.
extern "C" void emulator_free(void* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    Region& region = *buffers.at(address);
    region.live = false;
    region.bytes = {};
    region.cells = {};
    const Mapping& mapping = mappings[address];
    madvise(mapping.start, mapping.size, MADV_DONTNEED);
    mprotect(mapping.start, mapping.size, PROT_NONE);
    freed.push_back(address);
    if (freed.size() > MOST_FREED) forget_oldest();
}

extern "C" void emulator_define(void* data, std::uint64_t offset, std::uint64_t size) {
    Region& region = *buffers.at(reinterpret_cast<std::uintptr_t>(data));
    for (std::uint64_t i = offset; i < offset + size; i++) region.bytes[i] |= DEFINED;
}

// What is known of each byte of the live buffer that holds an address, and where it starts; null if none does.
extern "C" unsigned char* emulator_marks(void* address, std::uint64_t* begin, std::uint64_t* size, int* live) {
    Region* region = region_at(reinterpret_cast<std::uintptr_t>(address));
    if (region == nullptr || region->shared) return nullptr;
    *begin = region->begin;
    *size = region->end - region->begin;
    *live = region->live;
    return region->bytes.data();
}

// The start of the live buffer that holds an address, or null.
extern "C" void* emulator_buffer_at(void* address) {
    const Region* region = region_at(reinterpret_cast<std::uintptr_t>(address));
    return region && region->live && !region->shared ? reinterpret_cast<void*>(region->begin) : nullptr;
}

// The traffic of the last launch, and whether it both read and wrote some byte.
extern "C" int emulator_traffic(void* data, std::uint32_t number, Traffic* traffic) {
    const Region& region = *buffers.at(reinterpret_cast<std::uintptr_t>(data));
    if (region.seen != number) {
        *traffic = Traffic{};
        return 0;
    }
    *traffic = region.traffic;
    for (unsigned char byte : region.bytes)
        if ((byte & READ) && (byte & WRITTEN)) return 1;
    return 0;
}

extern "C" void emulator_shared_traffic(Traffic* sum) {
    *sum = Traffic{};
    for (const auto& region : shared_memory) {
        const Traffic& one = region->traffic;
        sum->reads += one.reads;
        sum->bytes_read += one.bytes_read;
        sum->writes += one.writes;
        sum->bytes_written += one.bytes_written;
        sum->atomics += one.atomics;
        sum->wide_reads += one.wide_reads;
        sum->wide_writes += one.wide_writes;
        sum->passes += one.passes;
        sum->instructions += one.instructions;
    }
}

// Constants of a module lie in its own image; `within` is an address there.
extern "C" void emulator_add_module(void* within) { dl_iterate_phdr(add_module, within); }

// Where in its library an address of code lies.
extern "C" std::uint64_t emulator_offset(const void* place) {
    Dl_info found{};
    if (dladdr(place, &found) == 0) return 0;
    return reinterpret_cast<std::uintptr_t>(place) - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
}

// The part of PTX that Berth's own kernels are written in, read and run one
// thread after the other. Integers, floats, predicates, branches, parameters,
// global memory and the special registers; no shared memory, barriers or calls:
// what is not known here does not parse. Nothing here knows about streams, time
// lines or contexts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::standin::ptx {

enum class Opcode : std::uint8_t {
  // clang-format off
  ld, st, mov, cvt, cvta, add, sub, mul_lo, mul_wide, mad_lo, mad_wide, fma, div, rem, min, max, neg, abs, bit_and,
  bit_or, bit_xor, bit_not, shl, shr, setp, selp, bra, ret, trap, atom_add, nanosleep
  // clang-format on
};
enum class Space : std::uint8_t { parameter, global };
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge };
enum class Special : std::uint8_t { tid, ntid, ctaid, nctaid, timer, laneid };

struct Type {
  char kind = 'b';  // b, u, s, f, or p for a predicate
  std::uint8_t bytes = 4;
};

struct Operand {
  enum class Kind : std::uint8_t { none, reg, immediate, special } kind = Kind::none;
  Special special{};
  std::uint8_t axis = 0;
  std::uint32_t reg = 0;
  std::uint64_t value = 0;
};

struct Instruction {
  Opcode opcode{};
  Type type, from;  // `from`: the source of cvt
  Space space{};
  Compare compare{};
  char rounding = 0;  // of cvt to an integer: to the n(earest), towards z(ero), m(inus), p(lus)
  std::optional<std::uint32_t> guard;
  bool guard_negated = false;
  std::vector<Operand> to;    // one, or the parts of a vector
  std::vector<Operand> read;  // sources; of ld and st after the address
  Operand address;            // a register, or an immediate: the parameter's offset
  std::int64_t offset = 0;
  std::size_t target = 0;  // of a branch
};

struct Parameter {
  std::string name;
  std::size_t offset = 0, bytes = 0;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::uint32_t registers = 0;
  std::vector<Instruction> code;
};

struct Module {
  int version = 0;  // 10 * major + minor
  int target = 0;   // of sm_52: 52
  std::map<std::string, Entry> entries;
};

struct Complaint {
  int line = 0;
  std::string text;
};
// The module, or what is wrong with the text in `complaint`.
std::optional<Module> parse(std::string_view text, Complaint& complaint);

// Memory as a kernel sees it: where a device address lies, and how far from
// there the memory continues.
struct Range {
  std::uint64_t begin = 0, end = 0;
  std::byte* host = nullptr;
};
using Locate = std::function<std::optional<Range>(std::uint64_t address)>;

struct Launch {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::vector<std::byte> parameters;
  std::uint64_t timer_ns = 0;  // when it starts
};

struct Outcome {
  enum class End : std::uint8_t { returned, illegal_address, misaligned, trapped, endless } end = End::returned;
  std::uint64_t instructions = 0;
  std::uint64_t timer_ns = 0;  // what the slowest thread spent watching the timer
};
Outcome run(const Entry& entry, const Launch& launch, const Locate& locate);

}  // namespace berth::standin::ptx

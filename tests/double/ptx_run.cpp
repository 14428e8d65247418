#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ptx.hpp"

namespace berth::standin::ptx {
namespace {

// A thread that takes longer than this without looking at the timer never ends.
constexpr std::uint64_t endless_instructions = 20'000'000;

std::uint64_t cut(std::uint64_t value, Type type) {
  return type.bytes == 8 ? value : value & ((std::uint64_t{1} << (8 * type.bytes)) - 1);
}
std::int64_t as_signed(std::uint64_t value, Type type) {
  const unsigned unused = 64 - 8U * type.bytes;
  return static_cast<std::int64_t>(value << unused) >> unused;
}
double as_float(std::uint64_t bits, Type type) {
  return type.bytes == 4 ? std::bit_cast<float>(static_cast<std::uint32_t>(bits)) : std::bit_cast<double>(bits);
}
std::uint64_t bits_of(double value, Type type) {
  return type.bytes == 4 ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                         : std::bit_cast<std::uint64_t>(value);
}

class Thread {
 public:
  Thread(const Entry& entry, const Launch& launch, const Locate& locate)
      : entry_(entry), launch_(launch), locate_(locate), registers_(entry.registers) {}

  // Runs one thread; the outcome's figures grow.
  void run(const std::array<std::uint32_t, 3>& block, const std::array<std::uint32_t, 3>& index, Outcome& outcome) {
    block_ = block;
    index_ = index;
    watched_ns_ = 0;
    end_ = Outcome::End::returned;
    std::fill(registers_.begin(), registers_.end(), 0);
    std::uint64_t steps = 0;
    for (std::size_t at = 0; at < entry_.code.size();) {
      const Instruction& instruction = entry_.code[at++];
      if (++steps > endless_instructions) {
        end_ = Outcome::End::endless;
        break;
      }
      if (instruction.guard && (registers_[*instruction.guard] != 0) == instruction.guard_negated) continue;
      if (instruction.opcode == Opcode::bra) {
        at = instruction.target;
      } else if (instruction.opcode == Opcode::ret) {
        break;
      } else if (!step(instruction)) {
        break;
      }
    }
    outcome.instructions += steps;
    outcome.timer_ns = std::max(outcome.timer_ns, watched_ns_);
    outcome.end = end_;
  }

 private:
  std::uint64_t read(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::reg: return registers_[operand.reg];
      case Operand::Kind::special: return special(operand);
      default: return operand.value;
    }
  }

  std::uint64_t special(const Operand& operand) {
    switch (operand.special) {
      case Special::tid: return index_[operand.axis];
      case Special::ntid: return launch_.block[operand.axis];
      case Special::ctaid: return block_[operand.axis];
      case Special::nctaid: return launch_.grid[operand.axis];
      case Special::laneid: return index_[0] % 32;
      case Special::timer: break;
    }
    // Each read of the timer finds that 1/16 more time has passed: a loop
    // over a second takes 230 rounds and ends at most 1/16 too late.
    const std::uint64_t now = launch_.timer_ns + watched_ns_;
    watched_ns_ += std::max<std::uint64_t>(500, watched_ns_ / 16);
    return now;
  }

  void write(const Operand& operand, std::uint64_t value) { registers_[operand.reg] = value; }

  std::byte* memory(const Instruction& instruction, std::size_t bytes) {
    const std::uint64_t address = read(instruction.address) + static_cast<std::uint64_t>(instruction.offset);
    if (instruction.space == Space::parameter) return parameters(address, bytes);
    if (address % std::bit_ceil(bytes) != 0) {
      end_ = Outcome::End::misaligned;
      return nullptr;
    }
    for (const Range& range : near_) {
      if (address >= range.begin && address < range.end && bytes <= range.end - address)
        return range.host + (address - range.begin);
    }
    const std::optional<Range> range = locate_(address);
    if (!range || bytes > range->end - address) {
      end_ = Outcome::End::illegal_address;
      return nullptr;
    }
    near_[next_near_++ % near_.size()] = *range;
    return range->host + (address - range->begin);
  }
  std::byte* parameters(std::uint64_t offset, std::size_t bytes) {
    if (offset + bytes <= launch_.parameters.size()) return const_cast<std::byte*>(launch_.parameters.data()) + offset;
    end_ = Outcome::End::illegal_address;
    return nullptr;
  }

  // Returns false if the thread ends here.
  bool step(const Instruction& i) {
    const Type type = i.type;
    switch (i.opcode) {
      case Opcode::trap: end_ = Outcome::End::trapped; return false;
      case Opcode::nanosleep: watched_ns_ += read(i.read[0]); return true;
      case Opcode::ld: {
        const std::byte* from = memory(i, type.bytes * i.to.size());
        if (from == nullptr) return false;
        for (std::size_t part = 0; part < i.to.size(); ++part) {
          std::uint64_t value = 0;
          std::memcpy(&value, from + part * type.bytes, type.bytes);
          // A register may be wider than what is loaded into it.
          write(i.to[part], type.kind == 's' ? static_cast<std::uint64_t>(as_signed(value, type)) : value);
        }
        return true;
      }
      case Opcode::st: {
        std::byte* to = memory(i, type.bytes * i.read.size());
        if (to == nullptr) return false;
        for (std::size_t part = 0; part < i.read.size(); ++part) {
          const std::uint64_t value = read(i.read[part]);
          std::memcpy(to + part * type.bytes, &value, type.bytes);
        }
        return true;
      }
      case Opcode::atom_add: {
        std::byte* at = memory(i, type.bytes);
        if (at == nullptr) return false;
        std::uint64_t before = 0;
        std::memcpy(&before, at, type.bytes);
        const std::uint64_t after = arithmetic(Opcode::add, type, before, read(i.read[0]), 0);
        std::memcpy(at, &after, type.bytes);
        write(i.to[0], before);
        return true;
      }
      case Opcode::mov:
      case Opcode::cvta: write(i.to[0], cut(read(i.read[0]), type.kind == 'p' ? Type{'b', 8} : type)); return true;
      case Opcode::cvt: write(i.to[0], convert(i, read(i.read[0]))); return true;
      case Opcode::setp: {
        const std::uint64_t a = read(i.read[0]), b = read(i.read[1]);
        write(i.to[0], compare(i, a, b) ? 1 : 0);
        return true;
      }
      case Opcode::selp: {
        const std::uint64_t a = read(i.read[0]), b = read(i.read[1]);
        write(i.to[0], cut(read(i.read[2]) != 0 ? a : b, type));
        return true;
      }
      default: {
        const std::uint64_t a = read(i.read[0]);
        const std::uint64_t b = i.read.size() > 1 ? read(i.read[1]) : 0;
        const std::uint64_t c = i.read.size() > 2 ? read(i.read[2]) : 0;
        write(i.to[0], type.kind == 'f' ? floating(i.opcode, type, a, b, c) : arithmetic(i.opcode, type, a, b, c));
        return true;
      }
    }
  }

  static std::uint64_t floating(Opcode opcode, Type type, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    const double x = as_float(a, type), y = as_float(b, type), z = as_float(c, type);
    switch (opcode) {
      case Opcode::add: return bits_of(x + y, type);
      case Opcode::sub: return bits_of(x - y, type);
      case Opcode::mul_lo: return bits_of(x * y, type);
      case Opcode::mad_lo:
      case Opcode::fma:
        return type.bytes == 4
                   ? bits_of(std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)), type)
                   : bits_of(std::fma(x, y, z), type);
      case Opcode::div: return bits_of(x / y, type);
      case Opcode::min: return bits_of(std::fmin(x, y), type);
      case Opcode::max: return bits_of(std::fmax(x, y), type);
      case Opcode::neg: return bits_of(-x, type);
      case Opcode::abs: return bits_of(std::fabs(x), type);
      default: return 0;
    }
  }

  static std::uint64_t arithmetic(Opcode opcode, Type type, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    if (type.kind == 'f') return floating(opcode, type, a, b, c);
    if (type.kind == 'p') type.bytes = 1;
    const bool is_signed = type.kind == 's';
    const Type wide{type.kind, static_cast<std::uint8_t>(2 * type.bytes)};
    // Widened to 64 bits with the right sign, so that one computation serves all sizes.
    const std::uint64_t x = is_signed ? static_cast<std::uint64_t>(as_signed(a, type)) : cut(a, type);
    const std::uint64_t y = is_signed ? static_cast<std::uint64_t>(as_signed(b, type)) : cut(b, type);
    const bool x_less = is_signed ? static_cast<std::int64_t>(x) < static_cast<std::int64_t>(y) : x < y;
    switch (opcode) {
      case Opcode::add: return cut(x + y, type);
      case Opcode::sub: return cut(x - y, type);
      case Opcode::mul_lo: return cut(x * y, type);
      case Opcode::mul_wide: return cut(x * y, wide);
      case Opcode::mad_lo: return cut(x * y + c, type);
      case Opcode::mad_wide: return cut(x * y + c, wide);
      // The hardware answers all ones to a division by zero.
      case Opcode::div:
        if (y == 0) return cut(~std::uint64_t{0}, type);
        return cut(
            is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x) / static_cast<std::int64_t>(y)) : x / y,
            type);
      case Opcode::rem:
        if (y == 0) return cut(x, type);
        return cut(
            is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x) % static_cast<std::int64_t>(y)) : x % y,
            type);
      case Opcode::min: return cut(x_less ? x : y, type);
      case Opcode::max: return cut(x_less ? y : x, type);
      case Opcode::neg: return cut(~x + 1, type);
      case Opcode::abs: return cut(static_cast<std::int64_t>(x) < 0 ? ~x + 1 : x, type);
      case Opcode::bit_and: return cut(x & y, type);
      case Opcode::bit_or: return cut(x | y, type);
      case Opcode::bit_xor: return cut(x ^ y, type);
      case Opcode::bit_not: return type.kind == 'p' ? static_cast<std::uint64_t>(a == 0) : cut(~x, type);
      case Opcode::shl: return b >= 8U * type.bytes ? 0 : cut(x << b, type);
      case Opcode::shr: {
        const std::uint64_t by = std::min<std::uint64_t>(b, 8U * type.bytes);
        if (is_signed)
          return cut(static_cast<std::uint64_t>(static_cast<std::int64_t>(x) >> std::min<std::uint64_t>(by, 63)), type);
        return by >= 64 ? 0 : cut(x >> by, type);
      }
      default: return 0;
    }
  }

  static bool compare(const Instruction& i, std::uint64_t a, std::uint64_t b) {
    const auto answer = [&](auto x, auto y) {
      switch (i.compare) {
        case Compare::eq: return x == y;
        case Compare::ne: return x != y;
        case Compare::lt: return x < y;
        case Compare::le: return x <= y;
        case Compare::gt: return x > y;
        case Compare::ge: return x >= y;
      }
      return false;
    };
    if (i.type.kind == 'f') return answer(as_float(a, i.type), as_float(b, i.type));
    if (i.type.kind == 's') return answer(as_signed(a, i.type), as_signed(b, i.type));
    return answer(cut(a, i.type), cut(b, i.type));
  }

  static std::uint64_t convert(const Instruction& i, std::uint64_t value) {
    const Type from = i.from, to = i.type;
    if (from.kind != 'f') {
      const std::uint64_t widened =
          from.kind == 's' ? static_cast<std::uint64_t>(as_signed(value, from)) : cut(value, from);
      if (to.kind != 'f') return cut(widened, to);
      return bits_of(
          from.kind == 's' ? static_cast<double>(static_cast<std::int64_t>(widened)) : static_cast<double>(widened),
          to);
    }
    double number = as_float(value, from);
    switch (i.rounding) {
      case 'n': number = std::nearbyint(number); break;
      case 'z': number = std::trunc(number); break;
      case 'm': number = std::floor(number); break;
      case 'p': number = std::ceil(number); break;
      default: break;
    }
    if (to.kind == 'f') return bits_of(number, to);
    // Out of range saturates, and NaN is zero, as on the hardware.
    if (std::isnan(number)) return 0;
    const double limit = std::ldexp(1.0, 8 * to.bytes - (to.kind == 's' ? 1 : 0));
    const double lowest = to.kind == 's' ? -limit : 0.0;
    if (number >= limit)
      return cut(to.kind == 's' ? (std::uint64_t{1} << (8 * to.bytes - 1)) - 1 : ~std::uint64_t{0}, to);
    if (number <= lowest) number = lowest;
    return cut(
        number < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(number)) : static_cast<std::uint64_t>(number),
        to);
  }

  const Entry& entry_;
  const Launch& launch_;
  const Locate& locate_;
  std::vector<std::uint64_t> registers_;
  std::array<Range, 4> near_{};  // where memory was found last
  std::size_t next_near_ = 0;
  std::array<std::uint32_t, 3> block_{}, index_{};
  std::uint64_t watched_ns_ = 0;
  Outcome::End end_ = Outcome::End::returned;
};

}  // namespace

Outcome run(const Entry& entry, const Launch& launch, const Locate& locate) {
  Outcome outcome;
  Thread thread(entry, launch, locate);
  std::array<std::uint32_t, 3> block{}, index{};
  for (block[2] = 0; block[2] < launch.grid[2]; ++block[2])
    for (block[1] = 0; block[1] < launch.grid[1]; ++block[1])
      for (block[0] = 0; block[0] < launch.grid[0]; ++block[0])
        for (index[2] = 0; index[2] < launch.block[2]; ++index[2])
          for (index[1] = 0; index[1] < launch.block[1]; ++index[1])
            for (index[0] = 0; index[0] < launch.block[0]; ++index[0]) {
              thread.run(block, index, outcome);
              if (outcome.end != Outcome::End::returned) return outcome;
            }
  return outcome;
}

}  // namespace berth::standin::ptx

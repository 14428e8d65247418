#include <bit>
#include <charconv>
#include <cstdlib>

#include "ptx.hpp"

namespace berth::standin::ptx {
namespace {

struct Token {
  std::string_view text;
  int line;
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '%' || c == '$';
}

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (text.substr(i, 2) == "/*") {
      for (; i < text.size() && text.substr(i, 2) != "*/"; ++i) line += text[i] == '\n';
      i += 2;
    } else if (is_word(text[i])) {
      const std::size_t begin = i;
      while (i < text.size() && is_word(text[i])) ++i;
      tokens.push_back({text.substr(begin, i - begin), line});
    } else {
      if (text[i] == '\n') ++line;
      if (text[i] > ' ') tokens.push_back({text.substr(i, 1), line});
      ++i;
    }
  }
  return tokens;
}

std::optional<Type> type_of(std::string_view word) {
  if (word == ".pred") return Type{'p', 1};
  if (word.size() < 3 || word[0] != '.' || std::string_view("busf").find(word[1]) == std::string_view::npos) return {};
  const std::string_view bits = word.substr(2);
  for (const auto& [name, bytes] : {std::pair("8", 1), {"16", 2}, {"32", 4}, {"64", 8}}) {
    if (bits == name && (word[1] != 'f' || bytes >= 4)) return Type{word[1], static_cast<std::uint8_t>(bytes)};
  }
  return {};
}

const std::map<std::string_view, Opcode> opcodes{
    {"ld", Opcode::ld},       {"st", Opcode::st},         {"mov", Opcode::mov},
    {"cvt", Opcode::cvt},     {"cvta", Opcode::cvta},     {"add", Opcode::add},
    {"sub", Opcode::sub},     {"mul", Opcode::mul_lo},    {"mad", Opcode::mad_lo},
    {"fma", Opcode::fma},     {"div", Opcode::div},       {"rem", Opcode::rem},
    {"min", Opcode::min},     {"max", Opcode::max},       {"neg", Opcode::neg},
    {"abs", Opcode::abs},     {"and", Opcode::bit_and},   {"or", Opcode::bit_or},
    {"xor", Opcode::bit_xor}, {"not", Opcode::bit_not},   {"shl", Opcode::shl},
    {"shr", Opcode::shr},     {"setp", Opcode::setp},     {"selp", Opcode::selp},
    {"bra", Opcode::bra},     {"ret", Opcode::ret},       {"exit", Opcode::ret},
    {"trap", Opcode::trap},   {"atom", Opcode::atom_add}, {"nanosleep", Opcode::nanosleep},
};

const std::map<std::string_view, Compare> compares{
    {"eq", Compare::eq}, {"ne", Compare::ne}, {"lt", Compare::lt}, {"lo", Compare::lt}, {"le", Compare::le},
    {"ls", Compare::le}, {"gt", Compare::gt}, {"hi", Compare::gt}, {"ge", Compare::ge}, {"hs", Compare::ge},
};

// Words after the opcode that change nothing here: one thread runs at a time.
bool is_harmless(std::string_view word) {
  for (const std::string_view known : {"rn", "rz", "rm", "rp", "approx", "full", "ftz", "uni", "relaxed", "gpu", "sys",
                                       "volatile", "nc", "ca", "cg", "cs", "wb", "lo", "to"}) {
    if (word == known) return true;
  }
  return false;
}

struct Failure {
  Complaint complaint;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : tokens_(tokens_of(text)) {}

  Module module() {
    Module module;
    while (!at_end()) {
      const Token token = next();
      if (token.text == ".version") {
        const std::string number(next().text);
        module.version = static_cast<int>(std::strtod(number.c_str(), nullptr) * 10 + 0.5);
      } else if (token.text == ".target") {
        const Token target = next();
        if (!target.text.starts_with("sm_")) fail(target, "Unknown target architecture '", target.text);
        module.target = static_cast<int>(integer({target.text.substr(3, 2), target.line}));
      } else if (token.text == ".address_size") {
        if (const Token bits = next(); bits.text != "64") fail(bits, "Address size must be 64, not '", bits.text);
      } else if (token.text == ".visible" || token.text == ".weak") {
        continue;
      } else if (token.text == ".entry") {
        Entry made = entry();
        const std::string name = made.name;
        module.entries.emplace(name, std::move(made));
      } else {
        unexpected(token);
      }
    }
    if (module.version == 0) fail({"", 1}, "Missing .version directive at start of file", "");
    if (module.target == 0) fail({"", 1}, "Missing .target directive", "");
    return module;
  }

 private:
  [[noreturn]] static void fail(const Token& at, std::string_view what, std::string_view name) {
    throw Failure{{at.line, std::string(what) + std::string(name) + (name.empty() ? "" : "'")}};
  }
  [[noreturn]] static void unexpected(const Token& at) { fail(at, "Parsing error, syntax error near '", at.text); }

  bool at_end() const { return position_ == tokens_.size(); }
  Token peek() const { return at_end() ? Token{"", tokens_.empty() ? 1 : tokens_.back().line} : tokens_[position_]; }
  Token next() {
    const Token token = peek();
    if (at_end()) fail(token, "Unexpected end of the text", "");
    ++position_;
    return token;
  }
  bool take(std::string_view text) {
    if (peek().text != text) return false;
    ++position_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) unexpected(peek());
  }

  static std::uint64_t integer(const Token& token) {
    std::string_view digits = token.text;
    if (digits.ends_with('U')) digits.remove_suffix(1);
    int base = 10;
    if (digits.starts_with("0x")) digits.remove_prefix(2), base = 16;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size()) unexpected(token);
    return value;
  }

  Entry entry() {
    entry_ = {};
    registers_.clear();
    labels_.clear();
    branches_.clear();
    entry_.name = next().text;
    if (take("(")) {
      while (!take(")")) {
        parameter();
        if (peek().text != ")") expect(",");
      }
    }
    // What a launch may ask of the kernel, such as .maxntid 256, 1, 1.
    while (peek().text.starts_with('.')) {
      next();
      do {
        integer(next());
      } while (take(","));
    }
    expect("{");
    for (int depth = 1; depth > 0;) {
      if (take("{")) {
        ++depth;
      } else if (take("}")) {
        --depth;
      } else {
        statement();
      }
    }
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label.text);
      if (found == labels_.end()) fail(label, "Unknown label '", label.text);
      entry_.code[at].target = found->second;
    }
    entry_.registers = static_cast<std::uint32_t>(registers_.size());
    return std::move(entry_);
  }

  void parameter() {
    expect(".param");
    std::size_t alignment = 0, count = 1;
    if (take(".align")) alignment = integer(next());
    const Token word = next();
    const std::optional<Type> type = type_of(word.text);
    if (!type) unexpected(word);
    // What it points to, as newer compilers write it.
    if (take(".ptr")) {
      take(".global");
      if (take(".align")) integer(next());
    }
    Parameter made{std::string(next().text), 0, 0};
    if (take("[")) {
      count = integer(next());
      expect("]");
    }
    made.bytes = type->bytes * count;
    alignment = std::max<std::size_t>(alignment, type->bytes);
    made.offset = (entry_.parameter_bytes + alignment - 1) / alignment * alignment;
    entry_.parameter_bytes = made.offset + made.bytes;
    entry_.parameters.push_back(std::move(made));
  }

  void statement() {
    const Token word = peek();
    if (word.text == ".reg") return declaration();
    std::optional<std::uint32_t> guard;
    bool negated = false;
    if (take("@")) {
      negated = take("!");
      guard = known_register(next());
    } else if (position_ + 1 < tokens_.size() && tokens_[position_ + 1].text == ":") {
      labels_[next().text] = entry_.code.size();
      expect(":");
      return;
    }
    Instruction made = instruction();
    made.guard = guard;
    made.guard_negated = negated;
    entry_.code.push_back(std::move(made));
  }

  void declaration() {
    expect(".reg");
    const Token word = next();
    if (!type_of(word.text)) unexpected(word);
    do {
      const std::string name(next().text);
      if (take("<")) {
        const std::uint64_t count = integer(next());
        expect(">");
        for (std::uint64_t i = 0; i < count; ++i) declare(name + std::to_string(i));
      } else {
        declare(name);
      }
    } while (take(","));
    expect(";");
  }
  void declare(const std::string& name) { registers_.emplace(name, static_cast<std::uint32_t>(registers_.size())); }

  std::uint32_t known_register(const Token& token) const {
    const auto found = registers_.find(std::string(token.text));
    if (found == registers_.end()) fail(token, "Arguments mismatch or unknown symbol '", token.text);
    return found->second;
  }

  Instruction instruction() {
    const Token word = next();
    Instruction made;
    bool typed = false, wide = false, compared = false, added = false;
    std::size_t vector = 1;
    std::size_t dot = word.text.find('.');
    const std::string_view name = word.text.substr(0, dot);
    const auto known = opcodes.find(name);
    if (known == opcodes.end()) fail(word, "Not a name of any known instruction: '", word.text);
    made.opcode = known->second;
    while (dot != std::string_view::npos) {
      const std::size_t begin = dot + 1;
      dot = word.text.find('.', begin);
      const std::string_view part = word.text.substr(begin, dot == std::string_view::npos ? dot : dot - begin);
      if (const std::optional<Type> type = type_of(word.text.substr(begin - 1, part.size() + 1))) {
        (typed ? made.from : made.type) = *type;
        if (!typed) made.from = *type;
        typed = true;
      } else if (part == "param") {
        made.space = Space::parameter;
      } else if (part == "global") {
        made.space = Space::global;
      } else if (part == "wide") {
        wide = true;
      } else if (part == "v2" || part == "v4") {
        vector = part == "v2" ? 2 : 4;
      } else if (part.size() == 3 && part[0] == 'r' && part[2] == 'i') {
        made.rounding = part[1];
      } else if (made.opcode == Opcode::setp && compares.contains(part)) {
        made.compare = compares.at(part);
        compared = true;
      } else if (made.opcode == Opcode::atom_add && part == "add") {
        added = true;
      } else if (!is_harmless(part)) {
        fail(word, "Unknown modifier of the instruction '", word.text);
      }
    }
    if (wide) made.opcode = made.opcode == Opcode::mad_lo ? Opcode::mad_wide : Opcode::mul_wide;
    if ((made.opcode == Opcode::setp && !compared) || (made.opcode == Opcode::atom_add && !added))
      fail(word, "Unknown form of the instruction '", word.text);
    operands(made, word, vector);
    expect(";");
    return made;
  }

  void operands(Instruction& made, const Token& word, std::size_t vector) {
    std::size_t sources = 0;
    switch (made.opcode) {
      case Opcode::ret:
      case Opcode::trap: return;
      case Opcode::bra: branches_.emplace_back(entry_.code.size(), next()); return;
      case Opcode::nanosleep: made.read.push_back(operand(made)); return;
      case Opcode::st:
        address(made);
        expect(",");
        made.read = group(made, vector);
        return;
      case Opcode::ld:
        made.to = group(made, vector);
        expect(",");
        address(made);
        return;
      case Opcode::atom_add:
        made.to = group(made, 1);
        expect(",");
        address(made);
        sources = 1;
        break;
      case Opcode::mov:
      case Opcode::cvt:
      case Opcode::cvta:
      case Opcode::neg:
      case Opcode::abs:
      case Opcode::bit_not: sources = 1; break;
      case Opcode::mad_lo:
      case Opcode::mad_wide:
      case Opcode::fma:
      case Opcode::selp: sources = 3; break;
      default: sources = 2; break;
    }
    if (made.to.empty()) made.to = group(made, 1);
    for (std::size_t i = 0; i < sources; ++i) {
      if (!take(",")) fail(word, "Arguments mismatch for instruction '", word.text);
      made.read.push_back(operand(made));
    }
  }

  std::vector<Operand> group(const Instruction& made, std::size_t count) {
    if (count == 1) return {operand(made)};
    std::vector<Operand> all;
    expect("{");
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) expect(",");
      all.push_back(operand(made));
    }
    expect("}");
    return all;
  }

  void address(Instruction& made) {
    expect("[");
    const Token base = next();
    made.address.kind = Operand::Kind::immediate;
    if (made.space == Space::parameter) {
      const Parameter* found = nullptr;
      for (const Parameter& parameter : entry_.parameters) found = parameter.name == base.text ? &parameter : found;
      if (found == nullptr) fail(base, "Unknown symbol '", base.text);
      made.address.value = found->offset;
    } else if (base.text[0] >= '0' && base.text[0] <= '9') {
      made.address.value = integer(base);
    } else {
      made.address.kind = Operand::Kind::reg;
      made.address.reg = known_register(base);
    }
    if (take("+"))
      made.offset =
          take("-") ? -static_cast<std::int64_t>(integer(next())) : static_cast<std::int64_t>(integer(next()));
    expect("]");
  }

  Operand operand(const Instruction& made) {
    Operand read;
    const bool minus = take("-");
    const Token token = next();
    const char first = token.text[0];
    if (first >= '0' && first <= '9') {
      read.kind = Operand::Kind::immediate;
      read.value = number(token, made.type, minus);
      return read;
    }
    if (minus) unexpected(token);
    if (special(token.text, read)) return read;
    read.kind = Operand::Kind::reg;
    read.reg = known_register(token);
    return read;
  }

  static std::uint64_t number(const Token& token, Type type, bool minus) {
    if (token.text.starts_with("0f") || token.text.starts_with("0F"))
      return integer({std::string("0x").append(token.text.substr(2)), token.line});
    if (token.text.starts_with("0d") || token.text.starts_with("0D"))
      return integer({std::string("0x").append(token.text.substr(2)), token.line});
    if (type.kind == 'f') {
      const double value = std::strtod(std::string(token.text).c_str(), nullptr) * (minus ? -1 : 1);
      return type.bytes == 4 ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                             : std::bit_cast<std::uint64_t>(value);
    }
    const std::uint64_t value = integer(token);
    return minus ? ~value + 1 : value;
  }

  static bool special(std::string_view name, Operand& read) {
    static const std::map<std::string_view, Special> known{
        {"%tid", Special::tid},       {"%ntid", Special::ntid},         {"%ctaid", Special::ctaid},
        {"%nctaid", Special::nctaid}, {"%globaltimer", Special::timer}, {"%clock64", Special::timer},
        {"%laneid", Special::laneid}};
    const std::size_t dot = name.find('.');
    const auto found = known.find(name.substr(0, dot));
    if (found == known.end()) return false;
    const std::string_view axis = dot == std::string_view::npos ? "" : name.substr(dot);
    read.kind = Operand::Kind::special;
    read.special = found->second;
    read.axis = axis == ".y" ? 1 : axis == ".z" ? 2 : 0;
    return true;
  }

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  Entry entry_;
  std::map<std::string, std::uint32_t> registers_;
  std::map<std::string_view, std::size_t> labels_;
  std::vector<std::pair<std::size_t, Token>> branches_;
};

}  // namespace

std::optional<Module> parse(std::string_view text, Complaint& complaint) {
  try {
    return Reader(text).module();
  } catch (Failure& failure) {
    complaint = std::move(failure.complaint);
    return std::nullopt;
  }
}

}  // namespace berth::standin::ptx

// Reads the file of limits per user. Separate from limits.cpp, because toml++ is slow to compile.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "berth/bytes.hpp"
#include "inventory/toml.hpp"
#include "ledger/folders.hpp"
#include "ledger/limits.hpp"
#include "world/descriptor.hpp"
#include "world/printable.hpp"

namespace berth::ledger {
namespace {

constexpr std::size_t file_bytes_max = std::size_t{1} << 20;

struct Mistake {
  toml::source_region place;
  std::string text, advice;
};

std::string quoted(std::string_view text) { return "\"" + world::printable(text) + "\""; }

std::uint64_t value_of(const toml::key& key, LimitKind kind, const toml::node& node) {
  const auto* const number = node.as_integer();
  if (kind == LimitKind::memory) {
    const auto* const text = node.as_string();
    const Result<std::uint64_t> bytes =
        text ? parse_amount(text->get()) : Error{ErrorCode::invalid_argument, "it has no unit"};
    if (bytes) return *bytes;
    throw Mistake{key.source(), "memory is not an amount: " + bytes.error().message,
                  "write an amount with its unit in quotes, such as \"40GiB\""};
  }
  if (!number || number->get() < 0)
    throw Mistake{key.source(), quoted(key.str()) + " is not a whole number", "write a number from 0"};
  return static_cast<std::uint64_t>(number->get());
}

LimitsFile::Section section_of(const toml::key& title, const toml::node& node) {
  const toml::table* const table = node.as_table();
  if (!table)
    throw Mistake{title.source(), quoted(title.str()) + " is not a section", "write [user.NAME] or [group.NAME]"};
  LimitsFile::Section section{};
  for (const auto& [key, value] : *table) {
    std::size_t i = 0;
    while (i < limit_kinds && key.str() != to_string(static_cast<LimitKind>(i))) ++i;
    if (i == limit_kinds)
      throw Mistake{key.source(), quoted(key.str()) + " is not a limit",
                    "the limits are gpus, memory, running and waiting"};
    section[i] = value_of(key, static_cast<LimitKind>(i), value);
  }
  return section;
}

std::map<std::string, LimitsFile::Section> sections_of(const toml::key& title, const toml::node& node) {
  const toml::table* const table = node.as_table();
  if (!table)
    throw Mistake{title.source(), quoted(title.str()) + " is not a section",
                  "write [" + std::string(title.str()) + ".NAME]"};
  std::map<std::string, LimitsFile::Section> sections;
  for (const auto& [name, value] : *table) sections.emplace(name.str(), section_of(name, value));
  return sections;
}

Error unsafe(const std::string& path, const std::string& problem, const std::string& advice) {
  return {ErrorCode::unavailable, path + " " + problem, advice};
}

Error unreadable(const std::string& path, int code) {
  return {ErrorCode::io, "cannot read " + path + ": " + std::strerror(code), "sudo chmod 644 " + path};
}

}  // namespace

Result<LimitsFile> parse_limits(std::string_view text, std::string_view path) {
  try {
    const toml::table root = inventory::parse_toml(text);
    LimitsFile file;
    for (const auto& [key, value] : root) {
      if (key.str() == "user")
        file.users = sections_of(key, value);
      else if (key.str() == "group")
        file.groups = sections_of(key, value);
      else if (key.str() == "default")
        file.others = section_of(key, value);
      else
        throw Mistake{key.source(), quoted(key.str()) + " is not a section",
                      "the sections are [user.NAME], [group.NAME] and [default]"};
    }
    return file;
  } catch (const toml::parse_error& error) {
    return inventory::invalid_toml(path, error);
  } catch (const Mistake& mistake) {
    return Error{ErrorCode::invalid_argument, inventory::toml_place(path, mistake.place.begin) + mistake.text,
                 mistake.advice};
  }
}

Result<LimitsFile> read_limits(const std::string& path) {
  const world::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return LimitsFile{};
  if (!file && errno == ELOOP) return unsafe(path, "is a symbolic link", "put the file itself there");
  if (!file) return unreadable(path, errno);
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return unreadable(path, errno);
  if (!S_ISREG(about.st_mode)) return unsafe(path, "is not a file", "put a file there");
  if (about.st_uid != 0 && about.st_uid != unmapped_user())
    return unsafe(path, "does not belong to root", "sudo chown root " + path);
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return unsafe(path, "can be written by users other than root", "sudo chmod 644 " + path);
  std::string text(file_bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable(path, errno);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > file_bytes_max) return unsafe(path, "is larger than 1 MiB", "shorten it");
  text.resize(size);
  return parse_limits(text, path);
}

}  // namespace berth::ledger

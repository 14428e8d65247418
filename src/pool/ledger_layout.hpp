// The bytes of the ledger's file. Every process maps them, of whatever build, so
// nothing here may change without a new version number. Words are read and
// written whole, as atomics; texts are written before the word that announces
// them and end within their array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace berth::ledger_layout {

constexpr std::uint64_t magic = 0x314c'4854'5245'42ff;  // "\xffBERTHL1"
constexpr std::uint64_t version = 1;

constexpr std::size_t devices_max = 256;  // devices and memory domains of a machine, partitions included
constexpr std::size_t entries_max = 512;
constexpr std::size_t claims_max = 64;  // devices of one entry: eight GPUs cut into eight

struct Header {
  std::uint64_t magic;
  std::uint64_t version;
  std::uint64_t file_bytes;
  std::uint64_t next_id;
  std::uint64_t entries_used;  // entries at or beyond it are free
  std::uint64_t changes;       // the low half is what waiters sleep on
  std::uint64_t ended;         // entries that held something and do not any more
  std::array<char, 40> boot;   // of the machine; entries of an earlier one hold nothing
  std::array<char, 32> padding;
};

struct Device {
  std::uint64_t ready;  // 1: the rest is written
  std::uint64_t home;   // the row whose memory it uses; of a memory domain, itself
  std::uint64_t intent;
  std::array<char, 168> id;
};

struct Claim {
  std::uint64_t device;
  std::uint64_t bytes;
};

struct Holder {
  std::uint64_t pid;
  std::uint64_t start_time;
  std::uint64_t pid_namespace;
};

struct Entry {
  // From the low end: EntryState (0: free), which of `holders` counts, the id.
  std::uint64_t state;
  std::array<Holder, 2> holders;  // who reserved, who took it up
  std::uint64_t user;
  std::uint64_t flags;  // priority, then exclusive
  std::uint64_t since_ns;
  std::uint64_t expires_ns;  // 0: does not
  std::uint64_t loads_until_ns;
  std::uint64_t tried;  // the value of Header::changes
  std::uint64_t tried_at_ns;
  std::uint64_t claim_count;
  std::array<char, 40> name;
  std::array<Claim, claims_max> claims;
};

struct File {
  Header header;
  std::array<Device, devices_max> devices;
  std::array<Entry, entries_max> entries;
};

constexpr std::uint64_t kind_mask = 0xff;
constexpr int holder_shift = 8;
constexpr int id_shift = 9;
constexpr std::uint64_t id_mask = (std::uint64_t{1} << 54) - 1;
constexpr std::uint64_t exclusive_flag = 0x100;

static_assert(sizeof(Header) == 128 && sizeof(Device) == 192 && sizeof(Entry) == 1184);

}  // namespace berth::ledger_layout

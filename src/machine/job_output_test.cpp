#include "machine/job_output.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "ledger/test_folder.hpp"

namespace berth::machine {
namespace {

constexpr std::uint64_t bytes_max = 1 << 20;

class JobOutput : public testing::Test {
 protected:
  void append(const std::string& text) const { std::ofstream(path(), std::ios::app | std::ios::binary) << text; }
  // Lines of 8 bytes, with numbers from `first` on.
  static std::string lines(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) text += std::to_string(1'000'000 + i) + "\n";
    return text;
  }
  std::string path() const { return folder_.path / "output"; }
  OutputReader reader() const { return OutputReader::open(path()).value(); }
  static std::string all_of(OutputReader& reader) {
    std::string all;
    for (std::string text; !(text = reader.read(5000)).empty();) all += text;
    return all;
  }
  std::uint64_t disk_bytes() const {
    struct stat about{};
    return stat(path().c_str(), &about) == 0 ? static_cast<std::uint64_t>(about.st_blocks) * 512 : 0;
  }

  ledger::TestFolder folder_;
};

TEST_F(JobOutput, IsReadAsItIsWritten) {
  append("one\ntw");
  OutputReader reader = this->reader();
  EXPECT_EQ(all_of(reader), "one\ntw");
  EXPECT_EQ(reader.read(100), "");
  append("o\n" + lines(0, 10'000));
  EXPECT_EQ(all_of(reader), "o\n" + lines(0, 10'000));
}

TEST_F(JobOutput, ATailBeginsWithWholeLines) {
  append(lines(0, 100'000) + "last");
  const auto tail = [&](std::size_t count) {
    OutputReader reader = this->reader();
    reader.skip_to_tail(count);
    return all_of(reader);
  };
  EXPECT_EQ(tail(1), "last");
  EXPECT_EQ(tail(3), lines(99'998, 2) + "last");
  EXPECT_EQ(tail(50'001), lines(50'000, 50'000) + "last");
  EXPECT_EQ(tail(1'000'000), lines(0, 100'000) + "last");
}

TEST_F(JobOutput, WhatWasRemovedIsSaidOnce) {
  append(lines(0, 150'000));
  OutputReader late = reader(), reading = reader();
  const std::string begin = reading.read(8000);
  shorten_output(path(), bytes_max);
  EXPECT_LE(disk_bytes(), bytes_max);
  for (OutputReader* const reader : {&late, &reading}) {
    const std::string rest = all_of(*reader);
    const std::size_t end = rest.find('\n') + 1;
    const std::string first_line = rest.substr(0, end);
    EXPECT_TRUE(first_line.starts_with("berth: ")) << first_line;
    EXPECT_TRUE(first_line.ends_with(" bytes were removed here\n")) << first_line;
    const std::uint64_t removed = std::stoull(first_line.substr(7));
    const std::uint64_t read_before = reader == &late ? 0 : begin.size();
    EXPECT_TRUE((begin + lines(1000, 149'000)).ends_with(rest.substr(end))) << "whole lines, no zeroes";
    EXPECT_EQ(read_before + removed + rest.size() - end, 150'000u * 8);
  }
  OutputReader tail = reader();
  tail.skip_to_tail(1'000'000);
  EXPECT_TRUE(lines(0, 150'000).ends_with(all_of(tail))) << "no zeroes";
}

// ramfs makes no holes.
TEST_F(JobOutput, IsBoundedWithoutHolesToo) {
  const std::string folder = folder_.path.string();
  if (system(("mount -t ramfs none " + folder + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "mounting is not permitted here";
  {
    const world::Descriptor opened = open_output(path()).value();
    const int command = opened.get();
    append(lines(0, 150'000));
    OutputReader reading = reader();
    all_of(reading);
    shorten_output(path(), bytes_max);
    EXPECT_LE(disk_bytes(), bytes_max);
    EXPECT_EQ(reading.read(1000), "berth: output was removed here\n");
    const std::string more = lines(150'000, 10);
    EXPECT_EQ(write(command, more.data(), more.size()), static_cast<ssize_t>(more.size()));
    EXPECT_EQ(all_of(reading), more) << "a reader continues";
    OutputReader again = reader();
    const std::string left = all_of(again);
    EXPECT_GT(left.size(), bytes_max / 4);
    EXPECT_TRUE(lines(0, 150'010).ends_with(left)) << "new output is appended";
    close(command);
  }
  system(("umount " + folder).c_str());
}

TEST_F(JobOutput, OnlyAFileIsRead) {
  append("x");
  const std::string link = folder_.path / "link";
  ASSERT_EQ(symlink(path().c_str(), link.c_str()), 0);
  EXPECT_FALSE(OutputReader::open(link));
  EXPECT_FALSE(OutputReader::open(folder_.path.string()));
}

}  // namespace
}  // namespace berth::machine

#include "sim/tools/explain/archive.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "sim/tools/explain/sources.h"
#include "tests/deflated.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// One member of a tar archive, as POSIX has it.
std::string member(const std::string& name, const std::string& bytes, char type = '0',
                   const std::string& size = "") {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name.substr(0, 100));
  put(124, size.empty() ? fmt::format("{:011o}", bytes.size()) : size);
  put(148, std::string(8, ' '));
  header[156] = type;
  put(257, std::string("ustar\0", 6) + "00");
  int64_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}
const std::string kEnd(1024, '\0');

template <class T>
std::string number(size_t value) {
  const T narrow = static_cast<T>(value);
  return {reinterpret_cast<const char*>(&narrow), sizeof narrow};
}

// A zip archive of one file.
std::string zipped(const std::string& name, const std::string& bytes, uint16_t method = 8,
                   uint16_t flags = 0, uint32_t wrong = 0) {
  const std::string data = method == 8 ? deflated(bytes, -MAX_WBITS) : bytes;
  const uint32_t sum =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  const std::string fields =
      number<uint16_t>(20) + number<uint16_t>(flags) + number<uint16_t>(method) +
      number<uint32_t>(0) + number<uint32_t>(sum + wrong) + number<uint32_t>(data.size()) +
      number<uint32_t>(bytes.size()) + number<uint16_t>(name.size()) + number<uint16_t>(0);
  const std::string local = "PK\x03\x04" + fields + name + data;
  const std::string directory = "PK\x01\x02" + number<uint16_t>(20) + fields +
                                std::string(10, '\0') + number<uint32_t>(0) + name;
  return local + directory + std::string("PK\x05\x06\0\0\0\0", 8) + number<uint16_t>(1) +
         number<uint16_t>(1) + number<uint32_t>(directory.size()) + number<uint32_t>(local.size()) +
         number<uint16_t>(0);
}

std::string error_of(const std::string& bytes, const ArchiveLimits& limits = {},
                     const std::string& name = "left") {
  const TemporaryFolder folder;
  const auto read = read_archive(folder.write(name, bytes), limits);
  return read ? "" : to_text(read.errors().front());
}

std::vector<std::pair<std::string, std::string>> files_in(const std::string& bytes) {
  const TemporaryFolder folder;
  EXPECT_TRUE(is_archive(bytes));
  const auto read = read_archive(folder.write("left", bytes));
  EXPECT_TRUE(read) << (read ? "" : to_text(read.errors().front()));
  std::vector<std::pair<std::string, std::string>> files;
  if (read)
    for (const ArchivedFile& one : read.value()) files.emplace_back(one.name, one.bytes);
  return files;
}

using Files = std::vector<std::pair<std::string, std::string>>;

TEST(ExplainArchive, FilesOfEachKindAreRead) {
  const std::string tar = member("a/", "", '5') + member("./a/log.0", "hello") +
                          member("link", "", '2') + member("empty", "") + kEnd;
  const Files both = {{"a/log.0", "hello"}, {"empty", ""}};
  EXPECT_EQ(files_in(tar), both);
  EXPECT_EQ(files_in(gzipped(tar)), both);
  const std::string text(100'000, 'x');
  for (const uint16_t method : {0, 8}) {
    EXPECT_EQ(files_in(zipped("log.0", text, method)), (Files{{"log.0", text}}));
    EXPECT_EQ(files_in(zipped("log.0", "", method)), (Files{{"log.0", ""}}));
  }
  EXPECT_FALSE(is_archive("a log"));
  EXPECT_FALSE(is_archive(""));
}

TEST(ExplainArchive, LongNamesAreRead) {
  const std::string name(300, 'n');
  const std::string record = fmt::format(" path={}\n", name);
  const std::string pax = std::to_string(record.size() + 3) + record;
  EXPECT_EQ(files_in(member("x", name + '\0', 'L') + member("x", "1") + member("y", "2") + kEnd),
            (Files{{name, "1"}, {"y", "2"}}));
  EXPECT_EQ(files_in(member("x", pax, 'x') + member("x", "1") + member("y", "2") + kEnd),
            (Files{{name, "1"}, {"y", "2"}}));
}

TEST(ExplainArchive, WhatIsDamagedIsSaid) {
  const std::string tar = member("log.0", "hello") + kEnd;
  const std::string gzip = gzipped(tar), zip = zipped("log.0", "hello");
  EXPECT_THAT(error_of(tar.substr(0, 700)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(tar.substr(0, 1024)), HasSubstr("cut short")) << "no end";
  EXPECT_THAT(error_of(gzip.substr(0, gzip.size() - 4)), HasSubstr("gzip file is cut off"));
  std::string changed = gzip;
  changed[changed.size() - 6] ^= 1;
  EXPECT_THAT(error_of(changed), HasSubstr("gzip file is damaged"));
  changed = tar;
  changed[0] ^= 1;
  EXPECT_THAT(error_of(changed), HasSubstr("byte 0: no header"));
  EXPECT_THAT(error_of(gzipped("a log").substr(0, 20)), HasSubstr("gzip file is cut off"));
  EXPECT_THAT(error_of(member("a", "b", '0', "0000000000x") + kEnd), HasSubstr("without a size"));
  EXPECT_THAT(error_of(member("a", "b", 'S') + kEnd), HasSubstr("sparse"));
  EXPECT_THAT(error_of(member("a", "99 path=b\n", 'x') + kEnd), HasSubstr("damaged"));
  EXPECT_THAT(error_of(member("a", "1") + member("./a", "2") + kEnd),
              HasSubstr("two files named a"));
  EXPECT_THAT(error_of(zip.substr(0, zip.size() - 1)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(zipped("a", "b", 8, 1)), HasSubstr("encrypted"));
  EXPECT_THAT(error_of(zipped("a", "b", 12)), HasSubstr("packed by method 12"));
  EXPECT_THAT(error_of(zipped("a", "b", 8, 0, 1)), HasSubstr("checksum"));
  changed = zip;
  changed[35] ^= 0x7f;  // the first deflated byte
  EXPECT_THAT(error_of(changed), HasSubstr("damaged"));
}

TEST(ExplainArchive, AFileThatGzipPackedIsReadByItself) {
  const TemporaryFolder folder;
  const auto read = read_archive(folder.write("rank_3.log.gz", gzipped("a log")));
  ASSERT_TRUE(read);
  ASSERT_EQ(read.value().size(), 1U);
  EXPECT_EQ(read.value()[0].name, "rank_3.log");
  EXPECT_EQ(read.value()[0].bytes, "a log");
  EXPECT_TRUE(read.value()[0].alone);
  for (const char* name : {"left.tar.gz", "left.tgz"})
    EXPECT_THAT(error_of(gzipped(std::string(2000, 'x')), {}, name),
                HasSubstr("no header of a tar archive"));
  EXPECT_THAT(error_of(gzipped(std::string(4 << 20, 'x')), {.bytes = 1 << 20}),
              HasSubstr("more than 1048576 bytes"));
}

std::string small_dump(const std::string& rest = "}") {
  return R"({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}}, "entries": [])" +
         rest;
}

TEST(ExplainSources, PackedFilesOfAFolderAreReadAsIfTheyWereNot) {
  const TemporaryFolder folder;
  folder.write("_dump_0.gz", gzipped(small_dump()));
  folder.write("_dump_1", small_dump());
  folder.write("rank_1.log.gz", gzipped("[rank1]: hello\n"));
  folder.write("old.tar.gz", gzipped(member("_dump_2", small_dump()) + kEnd));
  const auto job = read_job({folder.path()});
  ASSERT_TRUE(job) << to_text(job.errors().front());
  ASSERT_EQ(job.value().dumps.size(), 2U);
  EXPECT_EQ(job.value().dumps[0].rank, 0);
  EXPECT_EQ(job.value().logged, std::set<int64_t>{1});
  EXPECT_EQ(job.value().ignored.size(), 1U) << "an archive in a folder";
}

TEST(ExplainSources, ADamagedDumpBesideOthersIsTold) {
  const TemporaryFolder folder;
  folder.write("_dump_0", small_dump());
  const std::string damaged = folder.write("_dump_1", small_dump(""));
  const auto job = read_job({folder.path()});
  ASSERT_TRUE(job) << to_text(job.errors().front());
  EXPECT_EQ(job.value().dumps.size(), 1U);
  ASSERT_EQ(job.value().damaged.size(), 1U);
  EXPECT_THAT(job.value().damaged[0], HasSubstr("_dump_1: "));
  EXPECT_FALSE(read_job({folder.path(), damaged})) << "who names it means it";
}

TEST(ExplainSources, TheSameDumpTwiceIsOne) {
  const TemporaryFolder folder;
  folder.write("_dump_0", small_dump());
  folder.write("dump_0.json", " " + small_dump());
  const auto job = read_job({folder.path()});
  ASSERT_TRUE(job) << to_text(job.errors().front());
  EXPECT_EQ(job.value().dumps.size(), 1U);
  folder.write("trace_rank_0", small_dump(R"(, "pg_status": {"0": {"last_enqueued_collective": 3, )"
                                          R"("last_completed_collective": 3}}})"));
  EXPECT_FALSE(read_job({folder.path()})) << "taken at another time";
}

TEST(ExplainArchive, NothingGrowsBeyondTheLimits) {
  const std::string bomb(4 << 20, '\0');
  const ArchiveLimits small{.bytes = 1 << 20, .files = 2};
  EXPECT_THAT(error_of(gzipped(member("a", bomb) + kEnd), small),
              HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error_of(zipped("a", bomb), small), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error_of(gzipped(kEnd + bomb), small), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error_of(member("a", "", '0', std::string("\x80\0\0\0\x7f", 5)) + kEnd, small),
              HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error_of(member("a", "") + member("b", "") + member("c", "") + kEnd, small),
              HasSubstr("more than 2 files"));
}

TEST(ExplainArchive, DumpsAndLogsOfAnArchiveAreTheJobs) {
  const auto dump = [](const char* rest) {
    return std::string(
               R"({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}}, "entries": [])") +
           rest;
  };
  const std::string tar = member("dumps/_dump_0", dump("}")) + member("dumps/_dump_1", dump("}")) +
                          member("../../logs/rank_1.log", "hello\n") +
                          member("data.bin", std::string("\1\0\2", 3)) + kEnd;
  const TemporaryFolder folder;
  const std::string path = folder.write("left.tgz", gzipped(tar));
  const auto job = read_job({path});
  ASSERT_TRUE(job) << to_text(job.errors().front());
  EXPECT_EQ(job.value().dumps.size(), 2);
  EXPECT_EQ(job.value().dumps.back().rank, 1);
  EXPECT_EQ(job.value().dumps.back().file, path + "/dumps/_dump_1");
  EXPECT_EQ(job.value().logs, 1);
  EXPECT_EQ(job.value().logged, std::set<int64_t>{1});
  EXPECT_EQ(job.value().ignored, std::vector<std::string>{path + "/data.bin"});
  EXPECT_TRUE(is_job_evidence(path));
  EXPECT_FALSE(is_job_evidence(folder.write("model.pt", zipped("model/data.pkl", "\x80\x02."))));
  EXPECT_FALSE(read_job({folder.write("bad.tgz", gzipped(member("_dump_0", dump("")) + kEnd))}));
  EXPECT_FALSE(read_job({folder.write("none.tar", member("x.json", "{}") + kEnd)}));
}

}  // namespace
}  // namespace lockstep

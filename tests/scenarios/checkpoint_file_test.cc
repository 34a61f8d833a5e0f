#include "scenarios/checkpoint_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace lockstep {
namespace {

using testing::HasSubstr;

CheckpointFile example() {
  CheckpointFile file;
  file.step = 7;
  file.epoch = 1;
  file.world_size = 3;
  file.written_by = 2;
  file.seed = uint64_t{1} << 60;
  file.batch_size = 24;
  file.next_batch = 2;
  file.dtype = "float32";
  file.metric = 0.1;
  file.best_metric = 1.0 / 3;
  file.best_step = 4;
  file.resumed_after = {2, 4};
  file.tensors = {{"parameter", "fc1.weight", "float32", {2, 1}, std::string("abcdefg\0", 8)},
                  {"optimizer_state", "fc1.weight.step", "int64", {1}, "12345678"}};
  return file;
}

std::string error_of_file(const std::string& bytes) {
  try {
    decode_checkpoint(bytes, "x.checkpoint");
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

class CheckpointFileTest : public testing::Test {
 protected:
  CheckpointFileTest() {
    dir_ = std::filesystem::temp_directory_path() / ("checkpoint-" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
  }
  ~CheckpointFileTest() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return dir_ / "a" / "b" / "run.checkpoint"; }

  std::filesystem::path dir_;
};

TEST_F(CheckpointFileTest, WhatIsWrittenIsReadBack) {
  write_checkpoint(example(), path(), "rank-0");
  const CheckpointFile file = read_checkpoint(path());
  EXPECT_EQ(encode_checkpoint(file), encode_checkpoint(example()));
  EXPECT_EQ(file.step, 7);
  EXPECT_EQ(file.seed, uint64_t{1} << 60);
  EXPECT_EQ(*file.metric, 0.1);
  EXPECT_EQ(*file.best_metric, 1.0 / 3);
  EXPECT_EQ(file.resumed_after, (std::vector<int64_t>{2, 4}));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].bytes, example().tensors[0].bytes);
  EXPECT_EQ(file.tensors[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_FALSE(std::filesystem::exists(path() + ".new.rank-0"));
}

TEST_F(CheckpointFileTest, EveryTruncationAndEveryFlippedBitIsAnError) {
  const std::string whole = encode_checkpoint(example());
  ASSERT_EQ(error_of_file(whole), "");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(error_of_file(whole.substr(0, size)), HasSubstr("checkpoint x.checkpoint: "))
        << size;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_NE(error_of_file(damaged), "") << at;
  }
  EXPECT_THAT(error_of_file(whole + "x"), HasSubstr("damaged: longer than its header says"));
}

TEST_F(CheckpointFileTest, ErrorsNameThePathAndWhatIsWrong) {
  EXPECT_THAT(error_of_file("PK\3\4 some other program's"),
              HasSubstr("not a checkpoint of lockstep"));
  EXPECT_THAT(error_of_file(encode_checkpoint(example()).substr(0, 200)), HasSubstr("cut short"));
  try {
    read_checkpoint(path());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(std::string(error.what()), "checkpoint " + path() + ": there is no such file");
  }
}

TEST_F(CheckpointFileTest, FailureLeavesTheFormerFileAsItWas) {
  write_checkpoint(example(), path(), "rank-0");
  std::filesystem::create_directories(path() + ".new.rank-0");  // cannot be opened as a file
  CheckpointFile later = example();
  later.step = 9;
  EXPECT_THROW(write_checkpoint(later, path(), "rank-0"), CheckpointError);
  EXPECT_EQ(read_checkpoint(path()).step, 7);
}

TEST_F(CheckpointFileTest, WritersThatMakeTheSameFolderAtOnceDoNotFail) {
  for (int round = 0; round < 50; ++round) {
    std::filesystem::remove_all(dir_);
    std::vector<std::thread> writers;
    std::atomic<int> failed = 0;
    for (int rank = 0; rank < 4; ++rank)
      writers.emplace_back([&, rank] {
        try {
          write_checkpoint(example(), path(), "rank-" + std::to_string(rank));
        } catch (const CheckpointError&) {
          ++failed;
        }
      });
    for (std::thread& writer : writers) writer.join();
    ASSERT_EQ(failed, 0);
    EXPECT_EQ(read_checkpoint(path()).step, 7);
  }
}

}  // namespace
}  // namespace lockstep

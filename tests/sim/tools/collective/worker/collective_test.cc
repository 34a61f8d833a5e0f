#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scenarios/base/file.h"
#include "sim/tools/collective/worker/collective.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

CollectiveSpec board_spec(int64_t elements) {
  CollectiveSpec spec;
  spec.world_size = 3;
  spec.groups = {{"shm", "ring", 0}};
  spec.elements = {elements};
  return spec;
}

int board_files() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// Rank 1 finds this in the place of rank 0's memory.
void expect_board_refused(const std::string& where) {
  MemoryStore store;
  store.set("collective_board", where);
  const CollectiveSpec spec = board_spec(12);
  const int before = board_files();
  EXPECT_ANY_THROW(CollectiveBoard(spec, 1, store, soon())) << where;
  EXPECT_EQ(board_files(), before) << where;
}

TEST(CollectiveBoard, OpensRankZerosMemoryAndNothingElse) {
  const UniqueFd file(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd stranger(::memfd_create("stranger", MFD_CLOEXEC));
  const UniqueFd small(::memfd_create("lockstep-collective", MFD_CLOEXEC));
  const std::string self = std::to_string(::getpid());
  for (const UniqueFd* fd : {&file, &stranger, &small})
    expect_board_refused(self + " " + std::to_string(fd->get()));
  for (const std::string where : {"", "/dev/zero", "1", "1 ", "1 2 3", "1 -2", "-1 2", "self 1",
                                  "99999999999999999999 1", "/proc/self/fd/1"})
    expect_board_refused(where);
}

TEST(CollectiveBoard, ALimitThatAllowsNoRoomLeavesNothingOpen) {
  MemoryStore store;
  const CollectiveSpec spec = board_spec(int64_t{1} << 44);
  const int before = board_files();
  EXPECT_ANY_THROW(CollectiveBoard(spec, 0, store, soon()));
  EXPECT_EQ(board_files(), before);
}

TEST(CollectiveBoard, RanksSeeEachOthersInputs) {
  MemoryStore store;
  const CollectiveSpec spec = board_spec(12);
  CollectiveBoard first(spec, 0, store, soon()), second(spec, 1, store, soon()),
      third(spec, 2, store, soon());
  for (CollectiveBoard* board : {&first, &second, &third}) board->fill_input(12);
  first.compute_expected(12);
  EXPECT_EQ(third.count_wrong(0, 12, third.input()), 12);
}

}  // namespace

}  // namespace lockstep

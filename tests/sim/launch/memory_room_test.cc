#include "sim/launch/memory_room.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>

namespace lockstep {
namespace {

// In a process of its own: what it has more than now.
[[noreturn, maybe_unused]] void ask_within(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  const std::string why = why_no_room(1);
  std::fputs(why.c_str(), stderr);
  std::exit(why.empty() ? 0 : 1);
}

TEST(MemoryRoom, NothingIsAskedForWithoutALimit) {
  EXPECT_EQ(why_no_room(1'000'000), "");
  EXPECT_NO_THROW(take_room(1'000'000));
}

#ifndef __SANITIZE_ADDRESS__  // which dies itself where it gets no more address space
TEST(MemoryRoom, ALimitThatIsTooTightIsNamed) {
  EXPECT_EXIT(ask_within(rlim_t{200} << 20), testing::ExitedWithCode(1),
              "limited to 209 MB of address space \\(ulimit -v\\).* needs [0-9]+ MB more");
  EXPECT_EXIT(ask_within(rlim_t{1} << 40), testing::ExitedWithCode(0), "^$");
}
#endif

}  // namespace
}  // namespace lockstep

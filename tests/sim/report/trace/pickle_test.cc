#include "sim/report/trace/pickle.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// What `pickle.loads` of Python gives of these is beside them.
TEST(Pickle, WritesPlainValues) {
  PickleWriter out;
  out.begin_list();
  out.integer(7);
  out.integer(-1);
  out.integer(int64_t{1} << 40);
  out.real(0.5);
  out.boolean(true);
  out.boolean(false);
  out.none();
  out.begin_tuple();
  out.end_tuple();
  out.end_list();
  // [7, -1, 1 << 40, 0.5, True, False, None, ()]
  using namespace std::string_literals;
  EXPECT_EQ(out.take(),
            "\x80\x02]("
            "K\x07"
            "J\xff\xff\xff\xff"
            "\x8a\x08\0\0\0\0\0\x01\0\0"
            "G\x3f\xe0\0\0\0\0\0\0"
            "\x88\x89N(te."s);
}

TEST(Pickle, WritesATextOnce) {
  PickleWriter out;
  out.begin_dict();
  out.text("a");
  out.text("bc");
  out.text("bc");
  out.text("a");
  out.end_dict();
  // {"a": "bc", "bc": "a"}
  using namespace std::string_literals;
  EXPECT_EQ(out.take(),
            "\x80\x02}("
            "X\x01\0\0\0ar\0\0\0\0"
            "X\x02\0\0\0"
            "bcr\x01\0\0\0"
            "j\x01\0\0\0j\0\0\0\0u."s);
}

}  // namespace
}  // namespace lockstep

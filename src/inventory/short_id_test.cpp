#include "inventory/short_id.hpp"

#include <gtest/gtest.h>

namespace berth::inventory {
namespace {

const std::vector<DeviceId> ids{
    DeviceId("GPU-aaaaaaaa-1111-2222-3333-444455556666"), DeviceId("GPU-aaaaaaaa-1111-2222-9333-444455556666"),
    DeviceId("GPU-baaaaaaa-1111-2222-3333-444455556666"), DeviceId("sim-large-0"), DeviceId("cpu-opencl-0")};

TEST(ShortId, IdsStayDifferent) {
  const std::vector<std::string> expected{"GPU-aaaaaaaa-1111-2222-3", "GPU-aaaaaaaa-1111-2222-9", "GPU-baaaaaaa",
                                          "sim-large-0", "cpu-opencl-0"};
  EXPECT_EQ(short_ids(ids), expected);
  EXPECT_EQ(short_id(ids[0]), "GPU-aaaaaaaa") << "a single id needs no more characters";
}

TEST(ShortId, APartKeepsItsNameAfterTheShortIdOfItsDevice) {
  const DeviceId whole("GPU-baaaaaaa-1111-2222-3333-444455556666");
  const std::vector<DeviceId> parts{whole, DeviceId(whole.text() + "/sm64.0"), DeviceId(whole.text() + "/sm64.1")};
  EXPECT_EQ(short_ids(parts), (std::vector<std::string>{"GPU-baaaaaaa", "GPU-baaaaaaa/sm64.0", "GPU-baaaaaaa/sm64.1"}));
}

TEST(ShortId, IdsThatAreNotUuidsAreNotShortened) {
  for (const char* text : {"", "GPU-", "GPU-aaaaaaaa", "GPU-zzzzzzzz-1111-2222-3333-444455556666",
                           "GPU-aaaaaaaa-1111-2222-3333-4444555566667"})
    EXPECT_EQ(short_id(DeviceId(text), ids), text);
}

TEST(ShortId, IdsInTextAreShortened) {
  EXPECT_EQ(with_short_ids("free 2 GiB on GPU-aaaaaaaa-1111-2222-3333-444455556666 and "
                           "GPU-baaaaaaa-1111-2222-3333-444455556666/sm64.0",
                           ids),
            "free 2 GiB on GPU-aaaaaaaa-1111-2222-3 and GPU-baaaaaaa/sm64.0");
  EXPECT_EQ(with_short_ids("nothing on sim-large-0", ids), "nothing on sim-large-0");
}

}  // namespace
}  // namespace berth::inventory

// The version of the library, also of the project: CMakeLists.txt reads it from here.
#pragma once

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 2
#define BERTH_VERSION_PATCH 0

# One function per kind of target, so that every folder builds with the same rules.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Dev: optimised enough that tests on the reference model are quick; assertions stay on.
set(CMAKE_CXX_FLAGS_DEV "-O1 -g1")
set(CMAKE_C_FLAGS_DEV "-O1 -g1")
set(CMAKE_EXE_LINKER_FLAGS_DEV "")
set(CMAKE_SHARED_LINKER_FLAGS_DEV "")
set(CMAKE_MODULE_LINKER_FLAGS_DEV "")

# -O2: at -O3 g++ 12 warns of overflows in the standard library that are none. Arithmetic kernels ask for more themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRATA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()

add_library(strata_flags INTERFACE)
target_compile_options(strata_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(strata_flags INTERFACE -Wno-restrict)  # g++ 12 sees overlaps in std::string operator+
endif()
target_include_directories(strata_flags INTERFACE ${PROJECT_SOURCE_DIR})
if(STRATA_SANITIZE)
  target_compile_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
  if(STRATA_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(strata_flags INTERFACE -Wno-tsan)
  endif()
endif()
if(STRATA_FUZZ)
  target_compile_options(strata_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined)
  target_link_options(strata_flags INTERFACE -fsanitize=address,undefined)
endif()

# strata_library(NAME [LINK libs...]): a static library of every .cpp in the current folder.
function(strata_library name)
  cmake_parse_arguments(ARG "" "" "LINK;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC strata_flags ${ARG_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE strata_flags ${ARG_LINK})
  endif()
endfunction()

# strata_test_folder(NAME LABEL label [LINK libs...]): one GoogleTest program of every *_test.cpp in the folder.
function(strata_test_folder name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock_main)
  target_compile_definitions(${name} PRIVATE STRATA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# strata_plugin_module(NAME [LINK libs...]): the .cpp files of the current folder as a loadable plugin, for the tests.
# It exports the entry and nothing else.
function(strata_plugin_module name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  if(NOT STRATA_TESTS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(${name} MODULE ${sources})
  set(version_script ${PROJECT_SOURCE_DIR}/plugins/sdk/plugin.map)
  target_link_libraries(${name} PRIVATE strata_flags ${ARG_LINK})
  target_compile_options(${name} PRIVATE -USTRATA_PLUGIN_LINKED -fvisibility=hidden)
  target_link_options(${name} PRIVATE -Wl,--version-script=${version_script})
  set_target_properties(${name} PROPERTIES PREFIX "" LINK_DEPENDS ${version_script}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test_plugins)
endfunction()

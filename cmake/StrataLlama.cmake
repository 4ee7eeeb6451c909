# llama.cpp's libraries as the target strata_llama_cpp, where they are: an installed llama.cpp that the user names
# (-DSTRATA_LLAMA=installed and CMAKE_PREFIX_PATH), or what tools/install_deps llama left in the cache folder. Without
# either everything else builds.
set(STRATA_LLAMA "auto" CACHE STRING "llama.cpp for plugins/model_llama: auto, installed, off, or a folder that tools/install_deps llama made")
set(STRATA_LLAMA_VERSION 0.3.36)

if(STRATA_LLAMA STREQUAL "auto")
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(strata_llama_folder "$ENV{XDG_CACHE_HOME}/strata/llama-${STRATA_LLAMA_VERSION}")
  else()
    set(strata_llama_folder "$ENV{HOME}/.cache/strata/llama-${STRATA_LLAMA_VERSION}")
  endif()
elseif(NOT STRATA_LLAMA MATCHES "^(installed|off)$")
  set(strata_llama_folder "${STRATA_LLAMA}")
endif()

if(STRATA_LLAMA STREQUAL "installed")
  find_package(llama QUIET)
  if(NOT llama_FOUND)
    message(FATAL_ERROR "STRATA_LLAMA=installed: no llama-config.cmake under CMAKE_PREFIX_PATH (${CMAKE_PREFIX_PATH}); an installed "
                        "llama.cpp has one, a folder that tools/install_deps llama made has none: name that with -DSTRATA_LLAMA=FOLDER")
  endif()
  set(strata_llama_folder "${llama_DIR}")
  find_library(STRATA_LLAMA_COMMON llama-common REQUIRED HINTS ${LLAMA_LIB_DIR})
  find_library(STRATA_LLAMA_COMMON_BASE llama-common-base HINTS ${LLAMA_LIB_DIR})
  find_path(STRATA_LLAMA_COMMON_INCLUDE chat.h REQUIRED HINTS ${LLAMA_INCLUDE_DIR} PATH_SUFFIXES common llama.cpp/common)
  add_library(strata_llama_cpp INTERFACE)
  target_include_directories(strata_llama_cpp SYSTEM INTERFACE ${STRATA_LLAMA_COMMON_INCLUDE})
  target_link_libraries(strata_llama_cpp INTERFACE ${STRATA_LLAMA_COMMON} llama)
  if(STRATA_LLAMA_COMMON_BASE)
    target_link_libraries(strata_llama_cpp INTERFACE ${STRATA_LLAMA_COMMON_BASE})
  endif()
elseif(DEFINED strata_llama_folder AND EXISTS "${strata_llama_folder}/lib/libllama-common.a")
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  add_library(strata_llama_cpp INTERFACE)
  target_include_directories(strata_llama_cpp SYSTEM INTERFACE
    ${strata_llama_folder}/include ${strata_llama_folder}/include/common)
  file(GLOB strata_llama_libraries "${strata_llama_folder}/lib/*.a")
  target_link_libraries(strata_llama_cpp INTERFACE
    -Wl,--start-group ${strata_llama_libraries} -Wl,--end-group OpenMP::OpenMP_CXX Threads::Threads ${CMAKE_DL_LIBS})
elseif(NOT STRATA_LLAMA MATCHES "^(auto|off)$")
  message(FATAL_ERROR "STRATA_LLAMA=${STRATA_LLAMA}: no lib/libllama-common.a there; tools/install_deps llama makes one")
endif()

if(TARGET strata_llama_cpp)
  message(STATUS "llama.cpp: ${strata_llama_folder}")
else()
  message(STATUS "llama.cpp: none; plugins/model_llama is left out (tools/install_deps llama brings it)")
endif()

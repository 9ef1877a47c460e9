# TensorRT plugins for all ops, into the op library, and the harness that tests them without TensorRT.
set(SCHEMA ${CMAKE_CURRENT_BINARY_DIR}/generated/op_schema.h)
add_custom_command(
  OUTPUT ${SCHEMA}
  COMMAND ${Python3_EXECUTABLE} -m dsv4_trt.plugins.schema_header ${SCHEMA}
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/..
  DEPENDS ${OPS} schema_header.py
  COMMENT "Writing the op table as C++")

file(GLOB PLUGIN_SOURCES CONFIGURE_DEPENDS csrc/trt/*.cpp)
add_library(dsv4_trt_plugins OBJECT ${PLUGIN_SOURCES} ${SCHEMA})
target_include_directories(dsv4_trt_plugins PRIVATE csrc ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_include_directories(dsv4_trt_plugins SYSTEM PRIVATE ${TENSORRT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(dsv4_trt_plugins PRIVATE -Wall -Wextra)
set_target_properties(dsv4_trt_plugins PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
target_sources(dsv4_plugins PRIVATE $<TARGET_OBJECTS:dsv4_trt_plugins>)
set_source_files_properties(csrc/common/library.cpp PROPERTIES
  COMPILE_DEFINITIONS "DSV4_HAS_TENSORRT;DSV4_TENSORRT_VERSION=\"${TENSORRT_VERSION}\"")

file(GLOB HARNESS_SOURCES CONFIGURE_DEPENDS harness/*.cpp)
add_library(dsv4_plugin_harness SHARED ${HARNESS_SOURCES})
target_include_directories(dsv4_plugin_harness SYSTEM PRIVATE ${TENSORRT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(dsv4_plugin_harness PRIVATE ${CMAKE_DL_LIBS})
target_compile_options(dsv4_plugin_harness PRIVATE -Wall -Wextra)
set_target_properties(dsv4_plugin_harness PROPERTIES CXX_VISIBILITY_PRESET hidden)

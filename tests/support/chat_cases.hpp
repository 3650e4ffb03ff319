// Stands in for what llama.cpp's tests/test-chat.cpp includes, and writes each case down as a line
// of JSON instead of running it.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define LOG_DBG(...)
#define LOG_INF(...)
#define LOG_ERR(...)
#define GGML_ASSERT(...)
#define assert(...)

enum common_reasoning_format {
    COMMON_REASONING_FORMAT_NONE,
    COMMON_REASONING_FORMAT_AUTO,
    COMMON_REASONING_FORMAT_DEEPSEEK,
    COMMON_REASONING_FORMAT_DEEPSEEK_LEGACY
};
enum common_chat_continuation {
    COMMON_CHAT_CONTINUATION_NONE,
    COMMON_CHAT_CONTINUATION_AUTO,
    COMMON_CHAT_CONTINUATION_CONTENT,
    COMMON_CHAT_CONTINUATION_REASONING
};
enum common_chat_tool_choice {
    COMMON_CHAT_TOOL_CHOICE_AUTO,
    COMMON_CHAT_TOOL_CHOICE_REQUIRED,
    COMMON_CHAT_TOOL_CHOICE_NONE
};

struct common_chat_tool {
    std::string name, description, parameters;
};
struct common_chat_tool_call {
    std::string name, arguments, id;
};
struct common_chat_msg_content_part {
    std::string type, text;
};
struct common_chat_msg {
    std::string role, content;
    std::vector<common_chat_msg_content_part> content_parts;
    std::vector<common_chat_tool_call> tool_calls;
    std::string reasoning_content, tool_name, tool_call_id;
};
struct common_chat_templates_inputs {
    std::vector<common_chat_msg> messages;
    std::vector<common_chat_tool> tools;
    std::string json_schema;
    bool add_generation_prompt = true, parallel_tool_calls = false, enable_thinking = true;
    bool use_jinja = true;
    common_chat_tool_choice tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    common_reasoning_format reasoning_format = COMMON_REASONING_FORMAT_NONE;
    common_chat_continuation continue_final_message = COMMON_CHAT_CONTINUATION_NONE;
};

// What some blocks do beside the cases comes to nothing here.
struct common_chat_params {
    std::string prompt, parser, generation_prompt;
};
struct common_chat_parser_params {
    explicit common_chat_parser_params(const common_chat_params &) {}
    std::string generation_prompt;
};
struct common_peg_arena {
    void load(const std::string &) {}
};
using common_chat_templates_ptr = std::unique_ptr<int>;
static std::string g_template_filter;
inline common_chat_templates_ptr read_templates(const std::string &) { return nullptr; }
inline std::string read_file(const std::string &) { return ""; }
inline int * common_chat_templates_init(void *, const std::string &) { return nullptr; }
inline common_chat_params common_chat_templates_apply(int *, const common_chat_templates_inputs &) {
    return {};
}
inline common_chat_msg common_chat_peg_parse(const common_peg_arena &, const std::string &, bool,
                                             const common_chat_parser_params &) {
    return {};
}
inline bool string_ends_with(const std::string &, const std::string &) { return true; }

static void text(const std::string & value) {
    putchar('"');
    for (unsigned char c : value) {
        if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c < 32) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void member(const char * name, const std::string & value) {
    printf(",\"%s\":", name);
    text(value);
}

static void message(const common_chat_msg & value) {
    printf("{\"role\":");
    text(value.role);
    member("content", value.content);
    member("reasoning", value.reasoning_content);
    printf(",\"tool_calls\":[");
    for (const auto & call : value.tool_calls) {
        printf("%s{\"name\":", &call == &value.tool_calls[0] ? "" : ",");
        text(call.name);
        member("arguments", call.arguments);
        member("id", call.id);
        printf("}");
    }
    printf("]}");
}

class peg_test_builder {
    std::string template_, input_;
    unsigned line_;
    bool is_partial_ = false;
    common_chat_templates_inputs in_;
    common_chat_msg expect_;

  public:
    peg_test_builder(std::string name, std::string input, unsigned line)
        : template_(std::move(name)), input_(std::move(input)), line_(line) {}

#define SETTER(name, type, target)               \
    peg_test_builder & name(type value) {        \
        target = std::move(value);               \
        return *this;                            \
    }
    SETTER(reasoning_format, common_reasoning_format, in_.reasoning_format)
    SETTER(tools, std::vector<common_chat_tool>, in_.tools)
    SETTER(enable_thinking, bool, in_.enable_thinking)
    SETTER(parallel_tool_calls, bool, in_.parallel_tool_calls)
    SETTER(add_generation_prompt, bool, in_.add_generation_prompt)
    SETTER(continue_final_message, common_chat_continuation, in_.continue_final_message)
    SETTER(json_schema, std::string, in_.json_schema)
    SETTER(tool_choice, common_chat_tool_choice, in_.tool_choice)
    SETTER(messages, std::vector<common_chat_msg>, in_.messages)
    SETTER(is_partial, bool, is_partial_)
    SETTER(expect, common_chat_msg, expect_)
    SETTER(expect_content, std::string, expect_.content)
    SETTER(expect_reasoning, std::string, expect_.reasoning_content)
    SETTER(expect_tool_calls, std::vector<common_chat_tool_call>, expect_.tool_calls)
    peg_test_builder & expect_reconstruction(bool = true) { return *this; }

    void run() {
        printf("{\"line\":%u", line_);
        member("template", template_);
        member("input", input_);
        member("json_schema", in_.json_schema);
        printf(",\"reasoning_format\":%d,\"enable_thinking\":%s,\"parallel\":%s,"
               "\"generation_prompt\":%s,\"continuation\":%d,\"tool_choice\":%d,\"is_partial\":%s",
               in_.reasoning_format, in_.enable_thinking ? "true" : "false",
               in_.parallel_tool_calls ? "true" : "false",
               in_.add_generation_prompt ? "true" : "false", in_.continue_final_message,
               in_.tool_choice, is_partial_ ? "true" : "false");
        printf(",\"tools\":{");
        for (const auto & tool : in_.tools) {
            printf("%s", &tool == &in_.tools[0] ? "" : ",");
            text(tool.name);
            printf(":%s", tool.parameters.c_str());
        }
        printf("},\"messages\":[");
        for (const auto & one : in_.messages) {
            printf("%s", &one == &in_.messages[0] ? "" : ",");
            message(one);
        }
        printf("],\"expect\":");
        message(expect_);
        printf("}\n%c", 0);
    }
};

class peg_tester {
    std::string path_;

  public:
    explicit peg_tester(std::string path, bool = false) : path_(std::move(path)) {}
    const std::string & template_path() const { return path_; }
    peg_test_builder test(const std::string & input,
                          std::source_location at = std::source_location::current()) {
        return peg_test_builder(path_, input, at.line());
    }
};

package serve

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// verdict on a requirement: the tests that show that it is met, or why it does not apply.
type verdict struct{ met, not string }

const (
	noSampling   = "not applicable: the server asks for no model's answers (sampling)"
	noRoots      = "not applicable: the server asks for no roots; directories are its options"
	noPrompts    = "not applicable: the server has no prompts, and does not offer them in its capabilities"
	noCompletion = "not applicable: the server completes no arguments, and does not offer to in its capabilities"
	noSubscribe  = "not applicable: artifacts do not change, and the server does not offer subscriptions in its capabilities"
	noMedia      = "not applicable: commands have text; no tool's result is an image, sound or resource"
	noTasks      = "not applicable: the extension tasks is not offered; jobs are a tool"
	noOAuth      = "not applicable: the server is its user's own, with a token of its own"
)

// verdicts on the requirements for servers, by version and name. Under "" are those of both versions.
var verdicts = map[string]map[string]verdict{
	"": {
		"completion-complete":           {not: noCompletion},
		"tools-list":                    {met: "TestMCPTools TestModernVersions TestOffered"},
		"tools-call-simple-text":        {met: "TestMCPCall TestModernSessions"},
		"tools-call-image":              {not: noMedia},
		"tools-call-audio":              {not: noMedia},
		"tools-call-embedded-resource":  {not: noMedia},
		"tools-call-mixed-content":      {not: noMedia},
		"tools-call-error":              {met: "TestMCPCall TestMCPStartFailsForEveryTool TestMCPFilesAndChanges"},
		"tools-call-with-progress":      {met: "TestMCPProgress TestModernHTTP"},
		"server-sse-multiple-streams":   {met: "TestHTTPClients TestModernHTTP"},
		"resources-list":                {met: "TestMCPArtifacts"},
		"resources-read-text":           {met: "TestMCPArtifacts"},
		"resources-read-binary":         {met: "TestMCPArtifacts"},
		"resources-templates-read":      {met: "TestMCPArtifacts TestModernHTTP"},
		"prompts-list":                  {not: noPrompts},
		"prompts-get-simple":            {not: noPrompts},
		"prompts-get-with-args":         {not: noPrompts},
		"prompts-get-embedded-resource": {not: noPrompts},
		"prompts-get-with-image":        {not: noPrompts},
		"dns-rebinding-protection":      {met: "TestHTTPRefusals"},
	},
	"2025-11-25": {
		"server-initialize":            {met: "TestMCPVersions"},
		"logging-set-level":            {met: "TestMCPJobLog"},
		"ping":                         {met: "TestHTTPMask"},
		"tools-call-with-logging":      {met: "TestMCPJobLog"},
		"tools-call-sampling":          {not: noSampling},
		"tools-call-elicitation":       {met: "TestMCPAsk"},
		"elicitation-sep1034-defaults": {met: "TestForms"},
		"elicitation-sep1330-enums":    {met: "TestForms"},
		"resources-subscribe":          {not: noSubscribe},
		"resources-unsubscribe":        {not: noSubscribe},
		"server-session-lifecycle":     {met: "TestHTTPClients TestHTTPIdle TestHTTPTooManyClients"},
	},
	"2026-07-28": {
		"server-stateless":            {met: "TestModernVersions TestModernSessions TestModernHTTP"},
		"sep-2164-resource-not-found": {met: "TestModernSessions"},
		"caching":                     {met: "TestModernVersions"},
		"input-required-result-basic-elicitation":       {met: "TestModernAsk"},
		"input-required-result-basic-sampling":          {not: noSampling},
		"input-required-result-basic-list-roots":        {not: noRoots},
		"input-required-result-request-state":           {met: "TestModernAsk"},
		"input-required-result-multiple-input-requests": {not: "not applicable: a result has one question; the next one is asked when it is answered"},
		"input-required-result-multi-round":             {met: "TestModernAsk"},
		"input-required-result-missing-input-response":  {met: "TestModernAsk"},
		"input-required-result-non-tool-request":        {not: "not applicable: reading an artifact asks for nothing, and there are no prompts"},
		"input-required-result-result-type":             {met: "TestModernAsk"},
		"input-required-result-unsupported-methods":     {met: "TestModernVersions"},
		"input-required-result-tampered-state":          {met: "TestModernAsk"},
		"input-required-result-capability-check":        {met: "TestModernAsk"},
		"input-required-result-ignore-extra-params":     {met: "TestModernAsk"},
		"input-required-result-validate-input":          {met: "TestModernAsk"},
		"tasks-lifecycle":                               {not: noTasks},
		"tasks-capability-negotiation":                  {not: noTasks},
		"tasks-wire-fields":                             {not: noTasks},
		"tasks-request-state-removal":                   {not: noTasks},
		"tasks-mrtr-input":                              {not: noTasks},
		"tasks-request-headers":                         {not: noTasks},
		"tasks-dispatch-and-envelope":                   {not: noTasks},
		"tasks-status-notifications":                    {not: noTasks},
		"tasks-required-task-error":                     {not: noTasks},
		"tasks-mrtr-composition":                        {not: noTasks},
		"json-schema-2020-12":                           {met: "TestModernVersions"},
		"http-header-validation":                        {met: "TestModernHTTP"},
		"http-custom-header-server-validation":          {not: "not applicable: no argument of a tool is repeated in a header"},
		"sep-2350-server-scope-challenge":               {not: noOAuth},
	},
}

// Every requirement of the public conformance suite for servers has its verdict, and what is said to be met names tests
// that there are. Requirements for clients do not apply to a server.
func TestConformance(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
	}
	used := map[string]bool{}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		text, err := os.ReadFile(filepath.Join("testdata", "conformance", version+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(strings.TrimPrefix(line, "unscored "))
			if strings.HasPrefix(line, "#") || len(words) == 0 || words[0] == "client" {
				continue
			}
			rows++
			name := words[1]
			v, ok := verdicts[version][name]
			if at := version; !ok {
				v, ok = verdicts[""][name]
				used["/"+name] = ok
			} else {
				used[at+"/"+name] = true
			}
			if !ok || (v.met == "") == (v.not == "") {
				t.Errorf("%s: %s has no verdict, or two", version, name)
			}
			for test := range strings.FieldsSeq(v.met) {
				if !tests[test] {
					t.Errorf("%s: %s is met by %s, which there is not", version, name, test)
				}
			}
		}
		if rows < 30 {
			t.Errorf("%s has %d rows for servers", version, rows)
		}
	}
	for version, all := range verdicts {
		for name := range all {
			if !used[version+"/"+name] {
				t.Errorf("the verdict on %s %s is on nothing", version, name)
			}
		}
	}
}

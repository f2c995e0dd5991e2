"""The page's pure modules, run in a browser: session descriptions, echoes, transcripts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser.chromium import launch
from tests.browser.stub_peer import StubPeer, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

SDP = """v=0
m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9
a=ice-ufrag:frag
a=ice-pwd:password
a=mid:audio0
a=rtpmap:111 opus/48000/2
a=rtcp-fb:111 transport-cc
a=rtpmap:63 red/48000/2
a=rtpmap:9 G722/8000
""".replace("\n", "\r\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[Page]:
    async with serve(StubPeer()) as peer, launch() as browser:
        page = await browser.new_page()
        await page.goto(peer.url)
        yield page


async def test_nack_is_asked_for_once(page: Page) -> None:
    once, twice = await page.evaluate(
        "async (sdp) => { const { askForNack } = await import('/sdp.js');"
        " return [askForNack(sdp), askForNack(askForNack(sdp))]; }",
        SDP,
    )
    assert once.split("\r\n") == SDP.replace("opus/48000/2", "opus/48000/2\r\na=rtcp-fb:111 nack").split("\r\n")
    assert twice == once


async def test_red_moves_to_the_front_and_back(page: Page) -> None:
    first, last, none = await page.evaluate(
        "async (sdp) => { const { preferRed } = await import('/sdp.js');"
        " return [preferRed(sdp, true), preferRed(sdp, false), preferRed(sdp.replace('red', 'blue'), true)]; }",
        SDP,
    )
    assert first == SDP.replace("111 63 9\r\n", "63 111 9\r\n")
    assert last == SDP.replace("111 63 9\r\n", "111 9 63\r\n")
    assert none is None


async def test_candidates_are_told_as_a_fragment(page: Page) -> None:
    candidate = "candidate:1 1 udp 2122 192.0.2.1 5000 typ host"
    fragment = await page.evaluate(
        "async ([sdp, candidate]) => { const { candidateFragment } = await import('/sdp.js');"
        " return candidateFragment(sdp, [new RTCIceCandidate({ candidate, sdpMid: 'audio0' })], true); }",
        [SDP, candidate],
    )
    assert fragment.split("\r\n") == [
        "a=ice-ufrag:frag",
        "a=ice-pwd:password",
        "m=audio 9 UDP/TLS/RTP/SAVPF 0",
        "a=mid:audio0",
        f"a={candidate}",
        "a=end-of-candidates",
        "",
    ]


async def test_an_echo_gives_the_round_trip_without_the_hold(page: Page) -> None:
    median, ninetieth, forged, late = await page.evaluate("""async () => {
      const { EchoEstimator } = await import('/echo.js');
      const echo = new EchoEstimator();
      const answer = (sent, back, holdMs) => {
        const { seq } = echo.request(sent);
        echo.handleReply({ seq, received_us: 5e9, replied_us: 5e9 + holdMs * 1000 }, back);
      };
      for (let index = 0; index < 10; index += 1) answer(index * 100, index * 100 + 40 + index + 7, 7);
      const known = [echo.quantile(0.5, 1000), echo.quantile(0.9, 1000)];
      echo.handleReply({ seq: 999, received_us: 0, replied_us: 0 }, 1000);
      answer(1000, 1010, 900);
      return [...known, echo.quantile(1, 1000), echo.quantile(0.5, 9000)];
    }""")
    assert (median, ninetieth) == (45, 49)
    assert forged == 49, "an answer to nothing, and one held longer than it was away, count for nothing"
    assert late is None


async def test_a_transcript_grows_is_corrected_and_shows_what_was_not_heard(page: Page) -> None:
    log, drafts = await page.evaluate("""async () => {
      const { Transcript } = await import('/transcript.js');
      const [panel, log, drafts] = [0, 1, 2].map(() => document.createElement('ol'));
      const transcript = new Transcript(panel, log, drafts);
      const input = 'conversation.item.input_audio_transcription';
      const output = 'response.output_audio_transcript.delta';
      const done = { type: 'response.done', turn: 1, status: 'interrupted' };
      for (const message of [
        { type: `${input}.delta`, turn: 1, text: 'what tie is', stable_chars: 5 },
        { type: `${input}.delta`, turn: 1, text: 'what time is it', stable_chars: 10 },
        { type: `${input}.completed`, turn: 1, text: 'What time is it?' },
        { type: output, turn: 1, text: 'It is noon.' },
        { type: output, turn: 1, text: 'Time to eat' },
        { type: output, turn: 1, text: ', I think.' },
        { type: `${input}.delta`, turn: 2, text: 'thank', stable_chars: 0 },
        { ...done, reply_text: 'It is noon. Time to eat, I think.', heard_text: 'It is noon.' },
        { type: `${input}.completed`, turn: 3, text: ' ' },
        { type: 'something.newer', turn: 3 },
      ]) transcript.handleMessage(message);
      const words = (list) => [...list.querySelectorAll('.words')].map((each) => each.innerHTML);
      return [words(log), words(drafts)];
    }""")
    assert log == ["What time is it?", 'It is noon.<span class="unheard"> Time to eat, I think.</span>']
    assert drafts == ['<span class="unsure">thank</span>']


async def test_a_caller_who_goes_on_is_one_turn_and_the_withdrawn_answer_is_gone(page: Page) -> None:
    between, log = await page.evaluate("""async () => {
      const { Transcript } = await import('/transcript.js');
      const [panel, log, drafts] = [0, 1, 2].map(() => document.createElement('ol'));
      const transcript = new Transcript(panel, log, drafts);
      const input = 'conversation.item.input_audio_transcription';
      const output = 'response.output_audio_transcript.delta';
      const words = (list) => [...list.querySelectorAll('.words')].map((each) => each.textContent);
      const say = (...messages) => messages.forEach((message) => transcript.handleMessage({ turn: 1, ...message }));
      say({ type: 'input_audio_buffer.speech_started' }, { type: `${input}.completed`, text: 'Ask not' });
      say({ type: output, text: 'Why not?' }, { type: 'input_audio_buffer.speech_started' });
      say({ type: 'response.done', status: 'interrupted', reply_text: 'Why not?', heard_text: '' });
      const between = [words(log), words(drafts)];
      say({ type: `${input}.completed`, text: 'Ask not what your country can do' });
      say({ type: output, text: 'I see.' });
      say({ type: 'response.done', status: 'completed', reply_text: 'I see.', heard_text: 'I see.' });
      return [between, words(log)];
    }""")
    assert between == [[], ["Ask not"]]
    assert log == ["Ask not what your country can do", "I see."]

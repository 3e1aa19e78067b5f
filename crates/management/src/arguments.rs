//! AMQP's tables in JSON, and back.

use amqp::{FieldTable, FieldValue};
use machine::{Arguments, Value};
use serde_json::{Map, Number, Value as Json};

use crate::reply::Problem;

/// Depth of a table that is taken: one more than AMQP's own bound is refused there with its reason.
const DEPTH_MAX: usize = 32;

/// The arguments of a queue, an exchange or a binding.
pub(crate) fn shown(arguments: &Arguments) -> Json {
    let fields = arguments.0.iter().map(|(name, value)| (name.clone(), shown_value(value)));
    Json::Object(fields.collect())
}

/// Depth is bounded: the catalog has taken it (`machine::limits::VALUE_DEPTH_MAX`).
fn shown_value(value: &Value) -> Json {
    match value {
        Value::Void => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::U32(value) => (*value).into(),
        Value::F32(bits) => number(f32::from_bits(*bits).into()),
        Value::F64(bits) => number(f64::from_bits(*bits)),
        Value::Decimal { scale, value } => {
            number(f64::from(*value) / 10_f64.powi(i32::from(*scale)))
        }
        Value::Timestamp(seconds) => (*seconds).into(),
        Value::LongStr(bytes) | Value::Bytes(bytes) => {
            Json::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Value::Array(values) => Json::Array(values.iter().map(shown_value).collect()),
        Value::Table(table) => shown(table),
        Value::I8(_)
        | Value::U8(_)
        | Value::I16(_)
        | Value::U16(_)
        | Value::I32(_)
        | Value::I64(_) => value.integer().expect("these are integers").into(),
    }
}

/// JSON has no number that is none, and none that is endless.
fn number(value: f64) -> Json {
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

/// A message's headers.
pub(crate) fn shown_table(table: &FieldTable) -> Json {
    let fields = table.0.iter().map(|(name, value)| (name.clone(), shown_field(value)));
    Json::Object(fields.collect())
}

/// Depth is bounded: the table was checked when it was decoded (`amqp::limits::TABLE_DEPTH_MAX`).
fn shown_field(value: &FieldValue) -> Json {
    match value {
        FieldValue::Bool(value) => Json::Bool(*value),
        FieldValue::I8(value) => (*value).into(),
        FieldValue::U8(value) => (*value).into(),
        FieldValue::I16(value) => (*value).into(),
        FieldValue::U16(value) => (*value).into(),
        FieldValue::I32(value) => (*value).into(),
        FieldValue::U32(value) => (*value).into(),
        FieldValue::I64(value) => (*value).into(),
        FieldValue::F32(value) => number((*value).into()),
        FieldValue::F64(value) => number(*value),
        FieldValue::Decimal { scale, value } => {
            number(f64::from(*value) / 10_f64.powi(i32::from(*scale)))
        }
        FieldValue::LongStr(bytes) | FieldValue::Bytes(bytes) => {
            Json::String(String::from_utf8_lossy(bytes).into_owned())
        }
        FieldValue::Timestamp(seconds) => (*seconds).into(),
        FieldValue::Array(values) => Json::Array(values.iter().map(shown_field).collect()),
        FieldValue::Table(table) => shown_table(table),
        FieldValue::Void => Json::Null,
    }
}

/// A table of what JSON says, as RabbitMQ reads it: whole numbers are `long`, others `double`, texts long strings.
pub(crate) fn table(object: &Map<String, Json>) -> Result<FieldTable, Problem> {
    table_at(object, 0)
}

fn table_at(object: &Map<String, Json>, depth: usize) -> Result<FieldTable, Problem> {
    let mut fields = Vec::with_capacity(object.len());
    for (name, value) in object {
        if name.len() > u8::MAX.into() {
            return Err(Problem::bad("the name of an argument has more than 255 bytes"));
        }
        fields.push((name.clone(), field(value, depth)?));
    }
    Ok(FieldTable(fields))
}

fn field(value: &Json, depth: usize) -> Result<FieldValue, Problem> {
    if depth >= DEPTH_MAX {
        return Err(Problem::bad("the arguments are too deep"));
    }
    Ok(match value {
        Json::Null => FieldValue::Void,
        Json::Bool(value) => FieldValue::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => FieldValue::I64(whole),
            (None, Some(part)) => FieldValue::F64(part),
            (None, None) => return Err(Problem::bad("a number is too large")),
        },
        Json::String(text) => FieldValue::LongStr(text.clone().into_bytes()),
        Json::Array(values) => {
            let values = values.iter().map(|value| field(value, depth + 1));
            FieldValue::Array(values.collect::<Result<_, _>>()?)
        }
        Json::Object(object) => FieldValue::Table(table_at(object, depth + 1)?),
    })
}

/// The same as the machine's table, for what asks the catalog itself.
pub(crate) fn machine_table(object: &Map<String, Json>) -> Result<Arguments, Problem> {
    // It says first whether the depth is right.
    table(object)?;
    let fields = object.iter().map(|(name, value)| (name.clone(), machine_value(value)));
    Ok(Arguments(fields.collect()))
}

fn machine_value(value: &Json) -> Value {
    match value {
        Json::Null => Value::Void,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::I64(whole),
            None => Value::F64(number.as_f64().unwrap_or_default().to_bits()),
        },
        Json::String(text) => Value::LongStr(text.clone().into_bytes()),
        Json::Array(values) => Value::Array(values.iter().map(machine_value).collect()),
        Json::Object(object) => {
            let fields = object.iter().map(|(name, value)| (name.clone(), machine_value(value)));
            Value::Table(Arguments(fields.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_as_it_went() {
        let text = r#"{"x-max-length":10,"x-queue-type":"quorum","a":[1,true,null,{"b":1.5}]}"#;
        let Json::Object(object) = serde_json::from_str(text).unwrap() else { panic!("an object") };
        assert_eq!(shown_table(&table(&object).unwrap()), Json::Object(object));
    }

    #[test]
    fn what_is_too_deep_is_refused() {
        let mut value = Json::Null;
        for _ in 0..100 {
            value = Json::Array(vec![value]);
        }
        let object = Map::from_iter([("a".to_owned(), value)]);
        assert!(matches!(table(&object), Err(Problem::Bad(_))));
    }
}

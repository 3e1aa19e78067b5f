//! A table of settings as something to read: a page's table, and a file with all defaults.

use super::{Kind, Setting};

/// The rows of a page.
pub fn page(table: &[Setting]) -> String {
    let mut text = String::from(
        "| Setting | Environment | Flag | Default | Unit, bounds | Change takes | Meaning |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let code = |text: &str| format!("`{text}`");
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    for setting in table {
        let flag = setting.has_flag.then(|| code(&format!("--{}", setting.flag_name())));
        let default = setting.default.map(code).or(setting.otherwise.map(str::to_owned));
        let takes = if setting.is_reloaded { "reload" } else { "restart" };
        let cells = [
            code(setting.key),
            or_none(setting.variable_name().map(|name| code(&name))),
            or_none(flag),
            or_none(default),
            setting.bounds(),
            takes.to_owned(),
            setting.about().to_owned(),
        ];
        text.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
    }
    text
}

/// The settings as a file that could be read back, with what each is for.
pub fn reference(table: &[Setting]) -> String {
    let row = |setting: &Setting| {
        let line = line(setting, setting.default.unwrap_or_default());
        format!("# {}{line}\n\n", remark(setting))
    };
    table.iter().map(row).collect()
}

/// The same as an example to be changed: only what is `set` has an effect. All else has its default behind a `#` without
/// a space, so that taking the `#` away is all there is to do.
pub fn example(table: &[Setting], set: &[(&str, &str)]) -> String {
    let row = |setting: &Setting| {
        let given = set.iter().find(|(key, _)| *key == setting.key).map(|(_, text)| *text);
        let line = match given {
            Some(text) => line(setting, text),
            None => format!("#{}", line(setting, setting.default.unwrap_or_default())),
        };
        format!("# {}{line}\n\n", remark(setting))
    };
    table.iter().map(row).collect::<String>().trim_end().to_owned() + "\n"
}

/// What a setting is for, and the end of that line.
fn remark(setting: &Setting) -> String {
    let variable = setting.variable_name().map(|name| format!("; {name}")).unwrap_or_default();
    format!("{} ({}){variable}\n", setting.about(), setting.bounds())
}

/// A setting with a value.
fn line(setting: &Setting, text: &str) -> String {
    let is_bare = text.parse::<u64>().is_ok() || matches!(setting.kind, Kind::Switch);
    let quote = if is_bare { "" } else { "\"" };
    format!("{} = {quote}{text}{quote}", setting.key)
}

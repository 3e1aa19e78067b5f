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
        let default = setting.default.unwrap_or_default();
        let is_bare = default.parse::<u64>().is_ok() || matches!(setting.kind, Kind::Switch);
        let quote = if is_bare { "" } else { "\"" };
        let bounds = setting.bounds();
        let variable = setting.variable_name().map(|name| format!("; {name}")).unwrap_or_default();
        let (about, key) = (setting.about(), setting.key);
        format!("# {about} ({bounds}){variable}\n{key} = {quote}{default}{quote}\n\n")
    };
    table.iter().map(row).collect()
}

import { memo, useState } from 'react';
import { Button, DatePicker, Flex, Input, Select, Space, Tag } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../time';

/** A property that a list can be filtered by. */
export interface FilterProperty {
  /** The API's filter: a field, or `field__operator`. */
  key: string;
  title: string;
  /** A time: the user chooses a day, and the value of the filter is the start of that day. */
  isDate?: boolean;
  /** A boolean property: the user chooses yes or no. */
  isFlag?: boolean;
  /** The possible values; if omitted, the user enters a text, except for a date or flag. */
  choices?: readonly { value: string; label: string }[];
}

interface FilterBarProps {
  properties: readonly FilterProperty[];
  filters: Record<string, string>;
  onChange: (filters: Record<string, string>) => void;
}

/** Choose a property and a value; each active filter is a removable tag. */
export const FilterBar = memo(function FilterBar({
  properties,
  filters,
  onChange
}: FilterBarProps) {
  const { t, i18n } = useTranslation();
  const [key, setKey] = useState(properties[0]?.key ?? '');
  const [text, setText] = useState('');
  const property = properties.find(candidate => candidate.key === key);
  const flags = [true, false].map(value => ({
    value: String(value),
    label: t(value ? 'entities.yes' : 'entities.no')
  }));
  const choicesOf = (one: FilterProperty | undefined) => (one?.isFlag ? flags : one?.choices);
  const add = (value: string) => {
    setText('');
    if (value.trim()) {
      onChange({ ...filters, [key]: value.trim() });
    }
  };
  const labelOf = (name: string, value: string) => {
    const known = properties.find(candidate => candidate.key === name);
    const choice = choicesOf(known)?.find(candidate => candidate.value === value);
    const text = known?.isDate ? formatTime(value, i18n.language) : (choice?.label ?? value);
    return `${known?.title ?? name}: ${text}`;
  };
  return (
    <Flex wrap gap="small" align="center">
      <Space.Compact>
        <Select
          value={key}
          onChange={setKey}
          virtual={false}
          listHeight={420}
          aria-label={t('table.property')}
          options={properties.map(({ key: value, title }) => ({ value, label: title }))}
          style={{ minWidth: 120 }}
        />
        {property?.isDate ? (
          <DatePicker
            // The new key empties the picker after a choice. The tag shows the chosen day.
            key={`${property.key} ${filters[property.key] ?? ''}`}
            onChange={day => day && add(day.startOf('day').toISOString())}
            aria-label={property.title}
          />
        ) : property && choicesOf(property) ? (
          <Select
            value={null}
            onChange={(value: string | null) => add(value ?? '')}
            placeholder={t('table.choose')}
            aria-label={property.title}
            options={[...(choicesOf(property) ?? [])]}
            style={{ minWidth: 160 }}
          />
        ) : (
          <Input.Search
            value={text}
            onChange={event => setText(event.target.value)}
            onSearch={add}
            placeholder={t('table.find')}
            aria-label={t('table.find')}
            style={{ width: 200 }}
          />
        )}
      </Space.Compact>
      {Object.entries(filters).map(([name, value]) => (
        <Tag
          key={name}
          closable={{ 'aria-label': t('table.remove', { filter: labelOf(name, value) }) }}
          onClose={() =>
            onChange(
              Object.fromEntries(Object.entries(filters).filter(([other]) => other !== name))
            )
          }
        >
          {labelOf(name, value)}
        </Tag>
      ))}
      {Object.keys(filters).length > 1 && (
        <Button type="link" onClick={() => onChange({})}>
          {t('table.reset')}
        </Button>
      )}
    </Flex>
  );
});

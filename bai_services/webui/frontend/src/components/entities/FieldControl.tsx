import { useState } from 'react';
import {
  AutoComplete,
  DatePicker,
  Input,
  InputNumber,
  Select,
  Switch,
  type SelectProps
} from 'antd';
import dayjs from 'dayjs';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { entitiesQuery, type Item } from '../../data/entities';
import { choiceText, type Entity, type Field, type Reference } from './entity';

const MAX_CHOICES = 50;
// The first format is displayed; the others can be typed.
const TIME_FORMATS = ['YYYY-MM-DD HH:mm', 'YYYY-MM-DD H:mm', 'YYYY-MM-DD'];

interface FieldControlProps {
  entity: Entity;
  field: Field;
  placeholder?: string;
  // Set by Form.Item.
  id?: string;
  value?: unknown;
  checked?: boolean;
  onChange?: (value: unknown) => void;
}

/** The control for a field of a form. */
export function FieldControl({ entity, field, ...rest }: FieldControlProps) {
  const { t } = useTranslation();
  const control = rest as object;
  switch (field.kind) {
    case 'switch':
      return <Switch {...control} />;
    case 'number':
      return <InputNumber style={{ width: '100%' }} precision={field.decimals ?? 0} {...control} />;
    case 'password':
      return <Input.Password autoComplete="new-password" {...control} />;
    case 'choice':
    case 'choices':
      return (
        <Select
          allowClear={!field.isRequired}
          showSearch={{ optionFilterProp: 'label' }}
          {...(field.kind === 'choices' ? { mode: 'multiple' as const } : {})}
          options={(field.choices ?? []).map(value => ({
            value,
            label: choiceText(t, entity, field, value)
          }))}
          {...control}
        />
      );
    case 'words':
    case 'durations':
      return <Select mode="tags" open={false} suffix={false} {...control} />;
    case 'hosts':
    case 'json':
      return <Input.TextArea autoSize={{ minRows: 2, maxRows: 12 }} {...control} />;
    case 'lines':
      return <Input.TextArea autoSize={{ minRows: 3, maxRows: 16 }} {...control} />;
    case 'time':
      return (
        <DatePicker
          showTime={{ format: 'HH:mm' }}
          format={[...TIME_FORMATS]}
          // Otherwise a text that the user has typed would disappear without *OK* or Enter.
          needConfirm={false}
          allowClear={!field.isRequired}
          style={{ width: '100%' }}
          presets={(field.days ?? []).map(count => ({
            label: t('entities.in-days', { count }),
            value: () => dayjs().add(count, 'day')
          }))}
          {...control}
        />
      );
    case 'suggested':
      return (
        <AutoComplete
          allowClear={!field.isRequired}
          options={[...new Set(field.choices)].map(value => ({ value }))}
          {...control}
        />
      );
    case 'reference':
      return (
        <ReferenceSelect
          of={field.of ?? { path: '/domains', name: 'name' }}
          allowClear={!field.isRequired}
          {...control}
        />
      );
    default:
      return <Input {...control} />;
  }
}

interface ReferenceSelectProps extends SelectProps<string> {
  of: Reference;
}

/** Select an object by name. The server searches, because there can be thousands of objects. */
export function ReferenceSelect({ of, ...control }: ReferenceSelectProps) {
  const { path, name, id = name, within } = of;
  const [text, setText] = useState('');
  const filters = { ...of.filters, ...(text ? { [`${name}__contains`]: text } : {}) };
  const choices = useQuery(
    entitiesQuery(path, { limit: MAX_CHOICES, offset: 0, sort: name, filters })
  );
  const items = choices.data?.items ?? [];
  const isAmbiguous = within !== undefined && new Set(items.map(item => item[within])).size > 1;
  const labelOf = (item: Item) =>
    isAmbiguous ? `${String(item[within])}/${String(item[name])}` : String(item[name]);
  return (
    <Select
      showSearch={{ filterOption: false, onSearch: setText }}
      loading={choices.isPending}
      options={items.map(item => ({ value: String(item[id]), label: labelOf(item) }))}
      {...control}
    />
  );
}

import { useRef, useState } from 'react';
import { Alert, App, Button, Drawer, Flex, Form } from 'antd';
import { useQuery } from '@tanstack/react-query';
import type { i18n as I18n, TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { ApiError } from '../../data/client';
import { useSaveEntity, type Item } from '../../data/entities';
import { meQuery, type Me } from '../../data/accounts/me';
import { timeZone } from '../../data/usage/reports';
import {
  choiceText,
  fieldLabelKey,
  fieldsFor,
  idOf,
  labelKey,
  nameOf,
  type Entity,
  type Field
} from './entity';
import { FieldControl } from './FieldControl';
import { labelled, rulesOf } from './rules';
import { changedValues, newValues, toControl } from './values';

const SHOWN = { block: 'center', focus: true } as const;

interface EntityFormProps {
  entity: Entity;
  /** The object to change; undefined: create a new one. */
  item: Item | undefined;
  onClose: () => void;
  /** Called with the API's response for a new object. */
  onCreated?: ((item: Item) => void) | undefined;
}

/** Create or change an object; the problem of a field is shown at the field. */
export function EntityForm({ entity, item, onClose, onCreated }: EntityFormProps) {
  const { t, i18n } = useTranslation();
  const [form] = Form.useForm<Item>();
  const [error, setError] = useState<string>();
  const notice = useRef<HTMLDivElement>(null);
  // Not `isFieldsTouched`: it is also true for fields that a program has filled.
  const isChanged = useRef(false);
  const { message, modal } = App.useApp();
  const save = useSaveEntity(entity.path);
  const { data: me } = useQuery(meQuery);
  const fields = fieldsFor(entity, me?.role, item === undefined ? 'create' : 'change');
  // Compare the form with the object as it was when the form was opened. `item` changes when others
  // change the object; a comparison with `item` would undo their changes.
  const [opened] = useState(item);

  const shownValues = { ...opened, ...(Form.useWatch([], form) as Item | undefined) };
  const isShown = (field: Field) => field.isShown?.(shownValues) ?? true;
  const labelOf = (field: Field) => t(fieldLabelKey(entity, field, shownValues));
  // The fields that show a problem that the server has reported.
  const refused = useRef<string[]>([]);

  const submit = async (shown: Item) => {
    setError(undefined);
    try {
      if (opened === undefined) {
        const created = await save.mutateAsync({
          values: newValues(fields.filter(isShown), shown)
        });
        onCreated?.(created);
      } else {
        const values = changedValues(fields.filter(isShown), opened, shown);
        if (Object.keys(values).length > 0) {
          // The server rejects the change if another user has changed the object since.
          if (typeof opened['version'] === 'number') {
            values['version'] = opened['version'];
          }
          await save.mutateAsync({ key: idOf(entity, opened), values });
        }
      }
      onClose();
      void message.success(t('entities.saved'));
    } catch (problem) {
      const { names, text } = showProblems(problem as Error, fields, labelOf, form.setFields);
      refused.current = names;
      setError(text);
      const [invalid] = form.getFieldsError().filter(({ errors }) => errors.length > 0);
      if (text !== undefined) {
        notice.current?.scrollIntoView({ block: 'center' });
      } else if (invalid) {
        form.scrollToField(invalid.name, SHOWN);
      }
    }
  };

  /** Esc, the close button and a click beside the form must not discard the input. */
  const close = () => {
    if (!isChanged.current) {
      onClose();
      return;
    }
    modal.confirm({
      title: t('entities.discard-title'),
      okText: t('entities.discard'),
      okButtonProps: { danger: true },
      cancelText: t('entities.continue'),
      focusable: { autoFocusButton: 'cancel' },
      onOk: onClose
    });
  };

  return (
    <Drawer
      open
      onClose={close}
      size={520}
      title={item === undefined ? t(`${entity.name}.create`) : nameOf(entity, item)}
      footer={
        <Flex gap="small" justify="end">
          <Button onClick={onClose}>{t('entities.cancel')}</Button>
          <Button type="primary" loading={save.isPending} onClick={form.submit}>
            {t('entities.save')}
          </Button>
        </Flex>
      }
    >
      <div ref={notice}>
        {error && <Alert type="error" showIcon title={error} style={{ marginBottom: 16 }} />}
      </div>
      <Form
        form={form}
        layout="vertical"
        onValuesChange={() => {
          isChanged.current = true;
          // The server has checked earlier values, and its problem can depend on several fields.
          form.setFields(refused.current.map(name => ({ name, errors: [] })));
          refused.current = [];
        }}
        initialValues={Object.fromEntries(
          fields.map(field => [field.key, toControl(field, opened?.[field.key])])
        )}
        onFinish={values => void submit(values)}
      >
        {fields.filter(isShown).map(field => (
          <Form.Item
            key={field.key}
            name={field.key}
            label={labelOf(field)}
            extra={hintOf(entity, field, i18n)}
            valuePropName={field.kind === 'switch' ? 'checked' : 'value'}
            rules={rulesOf(entity, field, shownValues, t)}
          >
            <FieldControl
              entity={entity}
              field={field}
              {...(opened === undefined ? placeholderOf(entity, field, me, t) : {})}
            />
          </Form.Item>
        ))}
        {opened === undefined && entity.Prefill && <entity.Prefill />}
      </Form>
    </Drawer>
  );
}

function placeholderOf(entity: Entity, field: Field, me: Me | undefined, t: TFunction) {
  if (field.default === undefined || me === undefined) {
    return {};
  }
  const given = typeof field.default === 'string' ? field.default : field.default(me);
  const isChoice = field.kind === 'choice' || field.kind === 'choices';
  const value = isChoice ? choiceText(t, entity, field, given) : given;
  return { placeholder: t('entities.default', { value }) };
}

const HINTED = [
  'slots',
  'numbers',
  'duration',
  'durations',
  'hosts',
  'words',
  'json',
  'lines',
  'password'
];

/**
 * The text `ENTITY.KEY-hint`, else the text for the kind of the field; undefined: no hint. Times are
 * in the time zone of the browser, which the hint names.
 */
function hintOf(entity: Entity, field: Field, i18n: I18n) {
  const own = `${labelKey(entity, field.key)}-hint`;
  const hints = [
    i18n.exists(own) && i18n.t(own),
    field.kind === 'time' && i18n.t('entities.hint-time', { zone: timeZone() }),
    !i18n.exists(own) && HINTED.includes(field.kind) && i18n.t(`entities.hint-${field.kind}`)
  ];
  return hints.filter(Boolean).join(' · ') || undefined;
}

type SetFields = (fields: { name: string; errors: string[] }[]) => void;

/**
 * Show each problem of a field in `fields` at the field. `names`: these fields; `text`: the message
 * of `error`, or undefined if all its problems are shown at fields.
 */
function showProblems(
  error: Error,
  fields: readonly Field[],
  labelOf: (field: Field) => string,
  setFields: SetFields
) {
  const problems = error instanceof ApiError ? error.problems : [];
  const withLabels = (text: string) => labelled(text, fields, labelOf);
  const known = problems.flatMap(({ field, problem }) => {
    const name = field.split('.')[0] ?? '';
    return fields.some(({ key }) => key === name) ? [{ name, errors: [withLabels(problem)] }] : [];
  });
  setFields(known);
  const isComplete = known.length > 0 && known.length === problems.length;
  return {
    names: known.map(({ name }) => name),
    text: isComplete ? undefined : withLabels(error.message)
  };
}

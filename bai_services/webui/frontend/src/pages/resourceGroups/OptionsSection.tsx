import { useState, type ReactNode } from 'react';
import { Alert, App, Button, Descriptions, Form, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveEntity, type Item } from '../../data/entities';

interface OptionsSectionProps<Options extends object> {
  group: Item;
  isWriter: boolean;
  /** Name of the option in `scheduler_opts`. */
  option: string;
  title: string;
  editLabel: string;
  values: Options;
  /** Convert the values of the form to the stored option; default: they are the option. */
  toOption?: (values: Options) => Item;
  facts: ReactNode;
  /** The fields of the form. */
  children: ReactNode;
}

/** Options of a resource group in its drawer, with a form that changes them. */
export function OptionsSection<Options extends object>(props: OptionsSectionProps<Options>) {
  const { title, editLabel, isWriter, facts } = props;
  const [isEdited, setIsEdited] = useState(false);
  return (
    <section aria-label={title}>
      <Typography.Title level={5}>{title}</Typography.Title>
      {isEdited ? (
        <OptionsForm {...props} onClose={() => setIsEdited(false)} />
      ) : (
        <>
          {facts}
          {isWriter && (
            <div style={{ marginTop: 8 }}>
              <Button size="small" onClick={() => setIsEdited(true)}>
                {editLabel}
              </Button>
            </div>
          )}
        </>
      )}
    </section>
  );
}

/** Pairs of a label and a value. */
export function OptionFacts({ values }: { values: Record<string, string> }) {
  return (
    <Descriptions
      size="small"
      column={1}
      items={Object.entries(values).map(([label, children]) => ({ key: label, label, children }))}
    />
  );
}

function OptionsForm<Options extends object>({
  group,
  option,
  values,
  toOption,
  children,
  onClose
}: OptionsSectionProps<Options> & { onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const save = useSaveEntity('/resource-groups');
  const submit = (changed: Options) =>
    save.mutate(
      {
        key: String(group['name']),
        values: { scheduler_opts_changes: { [option]: toOption?.(changed) ?? changed } }
      },
      {
        onSuccess: () => {
          void message.success(t('preemptions.saved'));
          onClose();
        }
      }
    );
  return (
    <Form<Options> layout="vertical" initialValues={values} onFinish={submit}>
      {children}
      {save.error && (
        <Alert
          type="error"
          showIcon
          role="alert"
          title={save.error.message}
          style={{ marginBottom: 12 }}
        />
      )}
      <Button type="primary" size="small" htmlType="submit" loading={save.isPending}>
        {t('entities.save')}
      </Button>{' '}
      <Button size="small" onClick={onClose}>
        {t('entities.cancel')}
      </Button>
    </Form>
  );
}

/** Stored values of an option, completed with the defaults. */
export const optionValues = <Options extends object>(
  group: Item,
  option: string,
  defaults: Options
): Options => ({
  ...defaults,
  ...((group['scheduler_opts'] as Item | undefined)?.[option] as Partial<Options> | undefined)
});
